package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Family is a process and its children, those that it has now. Grandchildren are
// not among them.
func Family(pid int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	family := []int{pid}
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err == nil && parentOf(string(stat)) == pid {
			family = append(family, child)
		}
	}
	return family, nil
}

// parentOf reads "PID (NAME) STATE PPID ...", 0 when it is something else. A name
// may have spaces and parentheses in it.
func parentOf(stat string) int {
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) < 2 {
		return 0
	}
	ppid, err := strconv.Atoi(f[1])
	if err != nil {
		return 0
	}
	return ppid
}
