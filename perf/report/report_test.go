package report

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// example has three rounds of two modes; b fails in the second.
func example() *Report {
	r := &Report{
		Began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: time.Minute, Rounds: 3, Duration: time.Second,
		Topology: "star", Modes: []Mode{{Name: "baton", Version: "1"}, {Name: "nginx"}, {Name: "ipvs", Unavailable: "no | such"}},
		Workloads: []Workload{{Name: "kept-1", About: "One connection.", Figures: []Figure{
			{Key: "rate", Unit: "requests/s"}, {Key: "cpu_process", Unit: "µs/request", Lower: true}}}},
	}
	for i, v := range []float64{1000, 3000, 2000} {
		r.Cells = append(r.Cells, Cell{Round: i, Workload: "kept-1", Mode: "baton", Values: map[string]float64{"rate": v, "cpu_process": 7.5},
			Busy: time.Second, Other: time.Duration(i) * 10 * time.Millisecond})
	}
	r.Cells = append(r.Cells,
		Cell{Round: 0, Workload: "kept-1", Mode: "nginx", Values: map[string]float64{"rate": 500}},
		Cell{Round: 1, Workload: "kept-1", Mode: "nginx", Error: "no\nluck"},
		Cell{Round: 2, Workload: "kept-1", Mode: "nginx", Values: map[string]float64{"rate": 500}})
	return r
}

func TestSummary(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		want   Summary
	}{
		{nil, Summary{}},
		{[]float64{3}, Summary{1, 3, 3, 3}},
		{[]float64{9, 1, 4}, Summary{3, 4, 1, 9}},
		{[]float64{4, 1, 2, 9}, Summary{4, 3, 1, 9}},
	} {
		if got := summarize(tc.values); got != tc.want {
			t.Errorf("%v: %+v, want %+v", tc.values, got, tc.want)
		}
	}
}

// A ratio is that of each round; a round without one of the two does not count.
func TestRatio(t *testing.T) {
	r := example()
	if got, want := r.Ratio("kept-1", "baton", "nginx", "rate"), (Summary{2, 3, 2, 4}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := r.Ratio("kept-1", "baton", "haproxy", "rate"); got.N != 0 {
		t.Errorf("a ratio to what was not measured: %+v", got)
	}
}

func TestGoals(t *testing.T) {
	r := example()
	for _, tc := range []struct {
		goal Goal
		held bool
	}{
		{Goal{Mode: "baton", Key: "rate", Than: "nginx", Least: 3}, true},
		{Goal{Mode: "baton", Key: "rate", Than: "nginx", Least: 3.1}, false},
		{Goal{Mode: "baton", Key: "rate", Than: "nginx", Most: 3}, true},
		{Goal{Mode: "baton", Key: "rate", Than: "nginx", Most: 2.9}, false},
		{Goal{Mode: "baton", Key: "rate", Most: 3000}, true},
		{Goal{Mode: "baton", Key: "rate", Most: 2999}, false},
	} {
		tc.goal.Workloads = []string{"kept-1", "another"}
		v := r.Judge([]Goal{tc.goal})
		if len(v) != 1 || v[0].Held != tc.held {
			t.Errorf("%v: %+v", tc.goal, v)
		}
	}
}

func TestMarkdown(t *testing.T) {
	var b bytes.Buffer
	if err := example().Markdown(&b, []string{"nginx", "haproxy"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Measured on 2 January 2026 in 1m0s: 3 rounds of 1s, star.",
		"| ipvs | not measured: no \\| such |",
		"other processes used 1 % of the machine's time in the median cell, 2 % in the worst",
		"| kept-1 | baton | rate ≥ 1.2 × nginx | 3 (2 – 4) | yes |",
		"| mode | rate, requests/s | ÷ nginx | ÷ haproxy | cpu process, µs/request |\n|---|--:|--:|--:|--:|\n",
		"| baton | 2,000 (1,000 – 3,000) | 3 (2 – 4) | – | 7.5 (7.5 – 7.5) |\n",
		"| 1 | kept-1 | nginx | no luck |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("there is no %q in\n%s", want, b.String())
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 1.5: "1.5", 12.345: "12.3", 0.012345: "0.0123", 123456.7: "123,457", 1234: "1,234", -1234.5: "-1,234", 999.6: "1,000",
	} {
		if got := number(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

func TestWriteAndRead(t *testing.T) {
	var b bytes.Buffer
	want := example()
	if err := want.Write(&b); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v", got, err)
	}
	if _, err := Read(strings.NewReader("{")); err == nil {
		t.Error("half a report was read")
	}
}

func TestUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(path, []byte("# A\n"+beginMark+"\nold\n"+endMark+"\nz\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it replaces what the first time wrote
		if err := example().Update(path, nil); err != nil {
			t.Fatal(err)
		}
	}
	text, _ := os.ReadFile(path)
	s := string(text)
	if strings.Contains(s, "old") || !strings.HasPrefix(s, "# A\n") || !strings.HasSuffix(s, endMark+"\nz\n") || strings.Count(s, "### kept-1") != 1 {
		t.Errorf("the document is now\n%s", s)
	}
	if err := os.WriteFile(path, []byte("# A\n"+endMark), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := example().Update(path, nil); err == nil {
		t.Error("a document without marks was updated")
	}
}
