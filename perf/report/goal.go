package report

import (
	"fmt"
	"slices"
)

// Goal is what is wanted of a mode: a ratio to another one, or a bound.
type Goal struct {
	Workloads []string
	Mode      string
	Key       string
	Than      string  // the other mode; "" = a bound
	Least     float64 // of the median ratio; 0 = Most is the bound
	Most      float64 // of the median ratio; with no Than, of the greatest value
}

// Goals is what the project wants of Baton, in userspace and in the kernel.
var Goals = []Goal{
	{Workloads: bulk, Mode: "baton", Key: "rate", Than: "haproxy", Least: 1.5},
	{Workloads: kept, Mode: "baton", Key: "rate", Than: "nginx", Least: 1.2},
	{Workloads: []string{"connect-16"}, Mode: "baton", Key: "rate", Than: "nginx", Least: 1},
	{Workloads: []string{"connect-16"}, Mode: "baton", Key: "rate", Than: "haproxy", Least: 0.9},
	{Workloads: []string{"udp-16"}, Mode: "baton", Key: "rate", Than: "nginx", Least: 1.5},
	{Workloads: []string{"udp-oneway", "udp-burst"}, Mode: "baton", Key: "lost", Most: 0},
	{Workloads: []string{"udp-oneway", "udp-burst"}, Mode: "baton", Key: "cpu_process", Most: 1.5},

	{Workloads: slices.Concat(kept, bulk), Mode: "baton-bpf", Key: "rate", Than: "direct", Least: 0.95},
	{Workloads: slices.Concat(kept, bulk), Mode: "baton-bpf", Key: "rate", Than: "nftables", Least: 1},
	{Workloads: []string{"udp-16"}, Mode: "baton-bpf", Key: "rate", Than: "nftables", Least: 1},
	{Workloads: slices.Concat(kept, bulk), Mode: "baton-bpf", Key: "rate", Than: "baton", Least: 1.5},
	{Workloads: []string{"udp-16"}, Mode: "baton-bpf", Key: "rate", Than: "baton", Least: 1.5},
	{Workloads: bulk, Mode: "baton-bpf", Key: "cpu_machine", Than: "direct", Most: 1.1},

	{Workloads: []string{"connect-16"}, Mode: "baton-steer", Key: "rate", Than: "direct", Least: 0.95},
	{Workloads: []string{"connect-16", "udp-16"}, Mode: "baton-steer", Key: "rate", Than: "nftables", Least: 1},
	{Workloads: []string{"connect-16"}, Mode: "baton-steer", Key: "cpu_machine", Than: "nftables", Most: 1},
}

var (
	bulk = []string{"bulk-up-1", "bulk-up-4", "bulk-down-1", "bulk-down-4"}
	kept = []string{"kept-1", "kept-32"}
)

// Verdict is a goal held against a report.
type Verdict struct {
	Goal     Goal
	Workload string
	Measured Summary
	Held     bool
}

// Judge holds goals against the report. A goal for which nothing was measured is
// left out.
func (r *Report) Judge(goals []Goal) []Verdict {
	var verdicts []Verdict
	for _, g := range goals {
		for _, w := range g.Workloads {
			v := Verdict{Goal: g, Workload: w}
			if g.Than != "" {
				v.Measured = r.Ratio(w, g.Mode, g.Than, g.Key)
				v.Held = v.Measured.Median >= g.Least && (g.Most == 0 || v.Measured.Median <= g.Most)
			} else {
				v.Measured = r.Summary(w, g.Mode, g.Key)
				v.Held = v.Measured.Max <= g.Most
			}
			if v.Measured.N > 0 {
				verdicts = append(verdicts, v)
			}
		}
	}
	return verdicts
}

// String says what is wanted.
func (g Goal) String() string {
	switch {
	case g.Than != "" && g.Most > 0:
		return fmt.Sprintf("%s ≤ %s × %s", g.Key, number(g.Most), g.Than)
	case g.Than != "":
		return fmt.Sprintf("%s ≥ %s × %s", g.Key, number(g.Least), g.Than)
	}
	return fmt.Sprintf("%s ≤ %s", g.Key, number(g.Most))
}
