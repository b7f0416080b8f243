package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory is how many bytes of memory these processes occupy: pages that several
// share are counted by their share (PSS), so that processes of one program do not
// count its code twice. What the kernel holds for them is not in it.
func Memory(pids ...int) (int64, error) {
	var sum int64
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
		}
		n, err := parseRollup(string(text))
		if err != nil {
			return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
		}
		sum += n
	}
	return sum, nil
}

func parseRollup(text string) (int64, error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "Pss:")
		if !ok {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("line %q: %w", strings.TrimSpace(line), err)
		}
		return kb << 10, nil
	}
	return 0, fmt.Errorf("there is no line Pss")
}
