package suite

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Outcome is what became of one package's tests on one kernel.
type Outcome struct {
	Kernel, Package string
	Elapsed         time.Duration
	Fault           string            // why it failed as a whole
	Results         map[string]string // of top-level tests: "pass", "fail", "skip", or "run" if they did not end
	Output          string            // of what did not pass
	Times           map[string]time.Duration
}

// event is one of those of go tool test2json.
type event struct {
	Action, Test, Output string
	Elapsed              float64 // seconds
}

// read understands what a test program wrote with -test.v=test2json.
func (o *Outcome) read(ctx context.Context, output []byte) error {
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", "-t") // -t: with times
	cmd.Stdin = bytes.NewReader(output)
	events, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go tool test2json: %w", err)
	}
	return o.sort(bytes.NewReader(events))
}

// sort gives each top-level test its result and time, and keeps the output of those
// that did not pass together with that of no test.
func (o *Outcome) sort(r io.Reader) error {
	o.Results, o.Times = make(map[string]string), make(map[string]time.Duration)
	outputs := make(map[string]*strings.Builder) // by top-level test
	var order []string
	for d := json.NewDecoder(r); ; {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("read events of test2json: %w", err)
		}
		top, _, sub := strings.Cut(e.Test, "/")
		if outputs[top] == nil {
			outputs[top], order = new(strings.Builder), append(order, top)
		}
		outputs[top].WriteString(e.Output)
		switch e.Action {
		case "run", "pass", "fail", "skip":
			if top != "" && !sub {
				o.Results[top], o.Times[top] = e.Action, time.Duration(e.Elapsed*float64(time.Second))
			}
		}
	}
	var all strings.Builder
	for _, top := range order {
		if o.Results[top] != "pass" {
			all.WriteString(outputs[top].String())
		}
	}
	o.Output = all.String()
	return nil
}

// slowest names the tests that took longest, for those who look for time to save.
func (o Outcome) slowest(n int) string {
	names := slices.SortedFunc(maps.Keys(o.Times), func(a, b string) int { return cmp.Compare(o.Times[b], o.Times[a]) })
	var b strings.Builder
	for _, name := range names[:min(n, len(names))] {
		fmt.Fprintf(&b, " %s %.1fs", name, o.Times[name].Seconds())
	}
	return b.String()
}

// count is how many tests ended with a result.
func (o Outcome) count(result string) (n int) {
	for _, r := range o.Results {
		if r == result {
			n++
		}
	}
	return n
}

// Failed says whether something did not pass.
func (o Outcome) Failed() bool { return o.Fault != "" || o.count("fail")+o.count("run") > 0 }

// String is one line of the summary, in the manner of go test.
func (o Outcome) String() string {
	word, why := "ok  ", ""
	if o.Failed() {
		word = "FAIL"
	}
	if o.Fault != "" {
		why = ": " + o.Fault
	}
	return fmt.Sprintf("%s\t%s\t%s\t%d passed, %d failed, %d skipped\t%.1fs%s", word, o.Kernel, o.Package,
		o.count("pass"), o.count("fail")+o.count("run"), o.count("skip"), o.Elapsed.Seconds(), why)
}

// unmet are the selections for a kernel of which no test has run.
func unmet(all []Selection, kernel string, outcomes []Outcome) (missing []Selection) {
	for _, s := range all {
		if s.On(kernel) && !s.met(outcomes) {
			missing = append(missing, s)
		}
	}
	return missing
}

func (s Selection) met(outcomes []Outcome) bool {
	for _, o := range outcomes {
		if o.Package != s.Package {
			continue
		}
		for name, result := range o.Results {
			if (result == "pass" || result == "fail") && s.tests.MatchString(name) {
				return true
			}
		}
	}
	return false
}
