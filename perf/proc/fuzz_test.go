package proc

import "testing"

// Whatever the kernel says, reading it ends with no less than nothing or an error.
func FuzzParse(f *testing.F) {
	f.Add("1146537 2976745 18\n")
	f.Add("cpu  10 1 20 999 5 2 3 7 0 0\ncpu0 1\n")
	f.Add("55 ---p 0 0 [rollup]\nRss:  900 kB\nPss:    12 kB\n")
	f.Add("12 (a) b (c)) S 7 12 12")
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := parseSchedstat(text); err == nil && d < 0 {
			t.Errorf("schedstat: %v", d)
		}
		_, _ = parseStat(text)
		_, _ = parseRollup(text)
		_, _ = parentOf(text), cpuModel(text)
	})
}
