package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/baton-lb/baton/perf/mode"
	"github.com/baton-lb/baton/perf/workload"
)

// options are the flags.
type options struct {
	rounds     int
	duration   time.Duration
	modes      string
	workloads  string
	references string
	baton      string
	also       []mode.BatonSpec
	ipv6       bool
	quick      bool
	profile    bool
	out        string
	from       string
	update     string

	stdout, stderr io.Writer
}

func parse(args []string) (*options, error) {
	o := &options{stdout: os.Stdout, stderr: os.Stderr}
	f := flag.NewFlagSet("perf", flag.ContinueOnError)
	f.IntVar(&o.rounds, "rounds", 9, "how often each cell is measured")
	f.DurationVar(&o.duration, "duration", time.Second, "how long a cell is measured")
	f.StringVar(&o.modes, "modes", "", "modes, separated by commas (default: all): "+strings.Join(names(mode.All(mode.Options{Baton: "baton"})), ", "))
	f.StringVar(&o.workloads, "workloads", "", "workloads, separated by commas (default: all): "+strings.Join(workloadNames(workload.All(workload.Sizes{})), ", "))
	f.StringVar(&o.references, "reference", "haproxy,nginx", "modes that the tables compare with")
	f.StringVar(&o.baton, "baton", "", "the binary to measure (default: built from this module)")
	f.Func("also", "`NAME=PATH` of another binary of Baton, which becomes a mode; may be repeated", o.addBaton)
	f.BoolVar(&o.ipv6, "ipv6", false, "IPv6 instead of IPv4")
	f.BoolVar(&o.quick, "quick", false, "one round of 200ms with fewer datagrams and connections: a test, no measurement")
	f.BoolVar(&o.profile, "profile", false, "also take CPU profiles of Baton")
	f.StringVar(&o.out, "out", "perf.out", "directory for report.json, report.md and profiles")
	f.StringVar(&o.from, "from", "", "measure nothing: read `DIRECTORY`/report.json and write report.md anew")
	f.StringVar(&o.update, "update", "", "put the figures into this Markdown document, between its marks")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	return o, o.check(f.Args())
}

func (o *options) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("%q is no flag", rest[0])
	case o.rounds < 1:
		return errors.New("-rounds must be 1 or more")
	case o.duration < 10*time.Millisecond:
		return errors.New("-duration must be 10ms or more")
	}
	if o.quick {
		o.rounds, o.duration = 1, 200*time.Millisecond
	}
	return nil
}

func (o *options) addBaton(text string) error {
	name, path, ok := strings.Cut(text, "=")
	if !ok || name == "" || path == "" {
		return errors.New("use NAME=PATH")
	}
	o.also = append(o.also, mode.BatonSpec{Name: name, Path: path})
	return nil
}

// selected picks the named ones of all, in the order of all. Nothing named is all.
func selected[T any](what, list string, all []T, name func(T) string) ([]T, error) {
	if list == "" {
		return all, nil
	}
	wanted := make(map[string]bool)
	for _, n := range strings.Split(list, ",") {
		wanted[strings.TrimSpace(n)] = true
	}
	var some []T
	for _, x := range all {
		if wanted[name(x)] {
			some = append(some, x)
			delete(wanted, name(x))
		}
	}
	for n := range wanted {
		return nil, fmt.Errorf("there is no %s %q", what, n)
	}
	return some, nil
}

func workloadName(w workload.Workload) string { return w.Spec().Name }

func names(modes []mode.Mode) []string {
	var n []string
	for _, m := range modes {
		n = append(n, m.Name())
	}
	return n
}

func workloadNames(workloads []workload.Workload) []string {
	var n []string
	for _, w := range workloads {
		n = append(n, workloadName(w))
	}
	return n
}
