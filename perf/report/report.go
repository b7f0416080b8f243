package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/baton-lb/baton/perf/proc"
)

// Report is one run of the suite.
type Report struct {
	Began     time.Time     `json:"began"`
	Took      time.Duration `json:"took"` // nanoseconds, like all durations
	Machine   proc.Machine  `json:"machine"`
	Topology  string        `json:"topology"`
	Rounds    int           `json:"rounds"`
	Duration  time.Duration `json:"duration"` // of the measured part of a cell
	Modes     []Mode        `json:"modes"`
	Workloads []Workload    `json:"workloads"`
	Cells     []Cell        `json:"cells"`
}

// Mode is a way that was measured.
type Mode struct {
	Name        string `json:"name"`
	Version     string `json:"version,omitempty"`
	Unavailable string `json:"unavailable,omitempty"` // why it was not
}

// Workload is what was made to flow.
type Workload struct {
	Name    string   `json:"name"`
	About   string   `json:"about"`
	Figures []Figure `json:"figures"` // the first is what it is for
}

// Figure is a quantity that a workload yields.
type Figure struct {
	Key   string `json:"key"`
	Unit  string `json:"unit"`
	Lower bool   `json:"lower,omitempty"` // lower is better
	Plain bool   `json:"plain,omitempty"` // not compared: mostly 0
}

// Cell is one workload on one mode in one round.
type Cell struct {
	Round    int                `json:"round"`
	Workload string             `json:"workload"`
	Mode     string             `json:"mode"`
	Values   map[string]float64 `json:"values,omitempty"` // by the keys of figures
	Error    string             `json:"error,omitempty"`  // then there are no values
	Other    time.Duration      `json:"other,omitempty"`  // CPU time of what is neither the balancer nor the load
	Busy     time.Duration      `json:"busy,omitempty"`   // CPU time of everything
}

// Write writes the report as JSON.
func (r *Report) Write(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// Read reads what Write wrote.
func Read(in io.Reader) (*Report, error) {
	r := new(Report)
	if err := json.NewDecoder(in).Decode(r); err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	return r, nil
}

// Failed is the cells that have no figures.
func (r *Report) Failed() []Cell {
	var failed []Cell
	for _, c := range r.Cells {
		if c.Error != "" {
			failed = append(failed, c)
		}
	}
	return failed
}

// Summary sums up a figure, n = 0 when there is none.
func (r *Report) Summary(workload, mode, key string) Summary {
	var values []float64
	for _, v := range r.rounds(workload, mode, key) {
		values = append(values, v)
	}
	return summarize(values)
}

// Ratio sums up a figure of a mode divided by the same figure of another one in
// the same round. Rounds in which either is missing or the divisor is 0 do not
// count.
func (r *Report) Ratio(workload, mode, reference, key string) Summary {
	over, under := r.rounds(workload, mode, key), r.rounds(workload, reference, key)
	var ratios []float64
	for round, v := range over {
		if d, ok := under[round]; ok && d != 0 {
			ratios = append(ratios, v/d)
		}
	}
	return summarize(ratios)
}

// rounds is a figure by round.
func (r *Report) rounds(workload, mode, key string) map[int]float64 {
	values := make(map[int]float64)
	for _, c := range r.Cells {
		if v, ok := c.Values[key]; ok && c.Workload == workload && c.Mode == mode {
			values[c.Round] = v
		}
	}
	return values
}

// Summary is what is said of several values.
type Summary struct {
	N                int
	Median, Min, Max float64
}

func summarize(values []float64) Summary {
	n := len(values)
	if n == 0 {
		return Summary{}
	}
	slices.Sort(values)
	return Summary{N: n, Median: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1]}
}
