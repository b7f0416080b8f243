package proc

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name string
		got  func() (any, error)
		want any // nil: an error
	}{
		{"schedstat", func() (any, error) { return parseSchedstat("1146537 2976745 18\n") }, 1146537 * time.Nanosecond},
		{"no schedstat", func() (any, error) { return parseSchedstat("") }, nil},
		{"stat", func() (any, error) { return parseStat("cpu  10 1 20 999 5 2 3 7 0 0\ncpu0 1\n") }, 360 * time.Millisecond},
		{"short stat", func() (any, error) { return parseStat("cpu 1 2 3\n") }, nil},
		{"no stat", func() (any, error) { return parseStat("intr 1 2 3 4 5 6 7 8\n") }, nil},
		{"rollup", func() (any, error) {
			return parseRollup("55 ---p 0 0 [rollup]\nRss:  900 kB\nPss:    12 kB\nPss_Anon: 3 kB\n")
		}, int64(12 << 10)},
		{"no rollup", func() (any, error) { return parseRollup("Rss: 900 kB\n") }, nil},
		{"parent", func() (any, error) { return parentOf("12 (a) b (c)) S 7 12 12"), nil }, 7},
		{"no parent", func() (any, error) { return parentOf(""), nil }, 0},
		{"CPU", func() (any, error) { return cpuModel("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"), nil }, "Some CPU @ 2 GHz"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := tc.got()
			if tc.want == nil {
				if err == nil {
					t.Errorf("got %v, want an error", got)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("got %v, %v, want %v", got, err, tc.want)
			}
		})
	}
}

func TestThisProcess(t *testing.T) {
	before, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	busy, err := Busy()
	if err != nil || busy <= 0 {
		t.Errorf("busy %v: %v", busy, err)
	}
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
	}
	after, err := CPU(os.Getpid())
	if err != nil || after <= before {
		t.Errorf("CPU time before %v, after %v: %v", before, after, err)
	}
	if n, err := Memory(os.Getpid()); err != nil || n < 1<<20 {
		t.Errorf("memory %d: %v", n, err)
	}
	if _, err := CPU(-1); err == nil {
		t.Error("CPU time of no process")
	}
	if m := ThisMachine(); m.Kernel == "" || m.CPUs < 1 {
		t.Errorf("machine %+v", m)
	}
}

func TestFamily(t *testing.T) {
	c := exec.Command("cat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	family, err := Family(os.Getpid())
	if err != nil || family[0] != os.Getpid() || !slices.Contains(family, c.Process.Pid) {
		t.Errorf("family %v of %d lacks %d: %v", family, os.Getpid(), c.Process.Pid, err)
	}
	in.Close()
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}
