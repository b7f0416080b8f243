package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// CPU is how much CPU time the threads that these processes have now have used
// so far. The time of a thread that has ended is not in it.
func CPU(pids ...int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		d, err := cpuOf(pid)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

func cpuOf(pid int) (sum time.Duration, err error) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("list threads of process %d: %w", pid, err)
	}
	for _, t := range threads {
		text, err := os.ReadFile(dir + "/" + t.Name() + "/schedstat")
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just ended
		}
		if err != nil {
			return 0, fmt.Errorf("read CPU time of process %d: %w", pid, err)
		}
		d, err := parseSchedstat(string(text))
		if err != nil {
			return 0, fmt.Errorf("read CPU time of process %d: %w", pid, err)
		}
		sum += d
	}
	return sum, nil
}

// parseSchedstat reads "ON_CPU WAITING TIMESLICES", the first two nanoseconds
// (Documentation/scheduler/sched-stats.rst).
func parseSchedstat(text string) (time.Duration, error) {
	on, _, _ := strings.Cut(text, " ")
	ns, err := strconv.ParseInt(on, 10, 64)
	if err != nil || ns < 0 {
		return 0, fmt.Errorf("schedstat %q has no time", text)
	}
	return time.Duration(ns), nil
}

// userHz is the unit of /proc/stat: 1/100 s on every architecture that Go runs on.
const userHz = 10 * time.Millisecond

// Busy is how long the machine's CPUs, taken together, have not been idle. Time
// that a hypervisor took away is not in it.
func Busy() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read busy time: %w", err)
	}
	return parseStat(string(text))
}

// parseStat reads the line "cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ ...".
func parseStat(text string) (time.Duration, error) {
	line, _, _ := strings.Cut(text, "\n")
	f := strings.Fields(line)
	if len(f) < 8 || f[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var ticks int64
	for _, i := range []int{1, 2, 3, 6, 7} {
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat begins with %q: %w", line, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * userHz, nil
}
