package suite

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testvm"
)

// What a test program writes with -test.v=test2json; ^ stands for the mark.
const written = `^=== RUN   TestGood
a word of a good test
^--- PASS: TestGood (1.50s)
^=== RUN   TestBad
^=== RUN   TestBad/one
    bad_test.go:7: wrong
half a line^    --- FAIL: TestBad/one (0.00s)
^--- FAIL: TestBad (0.00s)
^=== RUN   TestSkipped
    skip_test.go:9: no tcx
^--- SKIP: TestSkipped (0.00s)
^FAIL
goroutines leaked
`

const cutShort = `^=== RUN   TestEndless
panic: test timed out after 1s
goroutine 1 [running]:
`

func read(t *testing.T, text string) (o Outcome) {
	t.Helper()
	if err := o.read(t.Context(), []byte(strings.ReplaceAll(text, "^", "\x16"))); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestReadOutcome(t *testing.T) {
	o := read(t, written)
	want := map[string]string{"TestGood": "pass", "TestBad": "fail", "TestSkipped": "skip"}
	if !maps.Equal(o.Results, want) {
		t.Errorf("got %v, want %v", o.Results, want)
	}
	for _, words := range []string{"bad_test.go:7: wrong", "half a line", "no tcx", "goroutines leaked"} {
		if !strings.Contains(o.Output, words) {
			t.Errorf("%q is missing in:\n%s", words, o.Output)
		}
	}
	if strings.Contains(o.Output, "good test") {
		t.Errorf("a good test is quoted:\n%s", o.Output)
	}
	if got := o.slowest(1); got != " TestGood 1.5s" {
		t.Errorf("slowest:%s", got)
	}
	o = read(t, cutShort)
	if o.Results["TestEndless"] != "run" || !strings.Contains(o.Output, "goroutine 1") {
		t.Errorf("of a test without an end: %v\n%s", o.Results, o.Output)
	}
}

func TestOutcome(t *testing.T) {
	for _, tc := range []struct {
		name   string
		o      Outcome
		failed bool
		line   string
	}{
		{"fine", Outcome{Results: map[string]string{"A": "pass", "B": "skip"}}, false, "ok  \t6.1\tlb\t1 passed, 0 failed, 1 skipped\t1.5s"},
		{"failed", Outcome{Results: map[string]string{"A": "pass", "B": "fail"}}, true, "FAIL\t6.1\tlb\t1 passed, 1 failed, 0 skipped\t1.5s"},
		{"unfinished", Outcome{Results: map[string]string{"A": "run"}}, true, "FAIL\t6.1\tlb\t0 passed, 1 failed, 0 skipped\t1.5s"},
		{"leak", Outcome{Results: map[string]string{"A": "pass"}, Fault: fault(testvm.Status{Code: 1})}, true,
			"FAIL\t6.1\tlb\t1 passed, 0 failed, 0 skipped\t1.5s: exit status 1"},
		{"killed", Outcome{Fault: fault(testvm.Status{Code: 137, TimedOut: true})}, true,
			"FAIL\t6.1\tlb\t0 passed, 0 failed, 0 skipped\t1.5s: killed for taking too long"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.o.Kernel, tc.o.Package, tc.o.Elapsed = "6.1", "lb", 1500*time.Millisecond
			if tc.o.Failed() != tc.failed || tc.o.String() != tc.line {
				t.Errorf("got %v, %q", tc.o.Failed(), tc.o.String())
			}
		})
	}
}

// A line of the list is met by a test that has run, whatever became of it.
func TestUnmet(t *testing.T) {
	list, err := ParseList("lb TestA\nlb TestB.*\nlb TestSkipped\nlb TestCut\nlb Test\nlb TestNew 6.12\naffinity TestA\n")
	if err != nil {
		t.Fatal(err)
	}
	outcomes := []Outcome{{Package: "lb", Results: map[string]string{"TestA": "pass", "TestBad": "fail", "TestSkipped": "skip", "TestCut": "run"}}}
	for kernel, want := range map[string]string{"6.1": "[3 4 5 7]", "6.12": "[3 4 5 6 7]"} {
		var lines []int
		for _, s := range unmet(list, kernel, outcomes) {
			lines = append(lines, s.Line)
		}
		if got := fmt.Sprint(lines); got != want {
			t.Errorf("linux %s: lines %v, want %v", kernel, got, want)
		}
	}
}
