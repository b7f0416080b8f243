package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Markdown writes the report for people. Each workload is a table with the first
// figure's ratios to the reference modes.
func (r *Report) Markdown(w io.Writer, references []string) error {
	var b strings.Builder
	r.writeConditions(&b)
	r.writeGoals(&b)
	for _, wl := range r.Workloads {
		r.writeWorkload(&b, wl, references)
	}
	r.writeFailed(&b)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func (r *Report) writeConditions(b *strings.Builder) {
	fmt.Fprintf(b, "Measured on %s in %s: %d rounds of %s, %s.\n\n",
		r.Began.UTC().Format("2 January 2006"), r.Took.Round(time.Second), r.Rounds, r.Duration, r.Topology)
	b.WriteString("| | |\n|---|---|\n")
	m := r.Machine
	fmt.Fprintf(b, "| machine | %d × %s, %s |\n", m.CPUs, cell(m.CPU), m.Arch)
	fmt.Fprintf(b, "| kernel | Linux %s |\n| load | %s |\n", cell(m.Kernel), cell(m.Go))
	for _, mode := range r.Modes {
		text := mode.Version
		if mode.Unavailable != "" {
			text = "not measured: " + mode.Unavailable
		}
		fmt.Fprintf(b, "| %s | %s |\n", mode.Name, cell(text))
	}
	fmt.Fprintf(b, "| disturbance | other processes used %s of the machine's time in the median cell, %s in the worst |\n\n",
		percent(r.disturbance().Median), percent(r.disturbance().Max))
}

// disturbance is the share of the machine that others used while cells ran.
func (r *Report) disturbance() Summary {
	var shares []float64
	for _, c := range r.Cells {
		if c.Error == "" && c.Busy > 0 {
			shares = append(shares, max(0, c.Other.Seconds()/c.Busy.Seconds()))
		}
	}
	return summarize(shares)
}

func (r *Report) writeGoals(b *strings.Builder) {
	verdicts := r.Judge(Goals)
	if len(verdicts) == 0 {
		return
	}
	b.WriteString("### Goals\n\n| workload | mode | goal | measured | held |\n|---|---|---|---|---|\n")
	for _, v := range verdicts {
		held := "yes"
		if !v.Held {
			held = "**no**"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", v.Workload, v.Goal.Mode, v.Goal, v.Measured, held)
	}
	b.WriteString("\n")
}

func (r *Report) writeWorkload(b *strings.Builder, w Workload, references []string) {
	if len(w.Figures) == 0 {
		return
	}
	first := w.Figures[0]
	if first.Plain {
		references = nil
	}
	fmt.Fprintf(b, "### %s\n\n%s\n\n| mode | %s |", w.Name, w.About, heading(first))
	for _, ref := range references {
		fmt.Fprintf(b, " ÷ %s |", ref)
	}
	for _, f := range w.Figures[1:] {
		fmt.Fprintf(b, " %s |", heading(f))
	}
	b.WriteString("\n|---" + strings.Repeat("|--:", len(w.Figures)+len(references)) + "|\n")
	for _, m := range r.Modes {
		if !r.measured(w.Name, m.Name) {
			continue
		}
		fmt.Fprintf(b, "| %s | %s |", m.Name, r.Summary(w.Name, m.Name, first.Key))
		for _, ref := range references {
			fmt.Fprintf(b, " %s |", r.Ratio(w.Name, m.Name, ref, first.Key))
		}
		for _, f := range w.Figures[1:] {
			fmt.Fprintf(b, " %s |", r.Summary(w.Name, m.Name, f.Key))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

func (r *Report) measured(workload, mode string) bool {
	return slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.Workload == workload && c.Mode == mode })
}

func (r *Report) writeFailed(b *strings.Builder) {
	failed := r.Failed()
	if len(failed) == 0 {
		return
	}
	b.WriteString("### Cells without figures\n\n| round | workload | mode | error |\n|--:|---|---|---|\n")
	for _, c := range failed {
		fmt.Fprintf(b, "| %d | %s | %s | %s |\n", c.Round, c.Workload, c.Mode, cell(c.Error))
	}
	b.WriteString("\n")
}

// heading is a figure's name and unit.
func heading(f Figure) string {
	name := strings.ReplaceAll(f.Key, "_", " ")
	if f.Unit == "" {
		return name
	}
	return name + ", " + f.Unit
}

// String is "median (least – greatest)".
func (s Summary) String() string {
	switch {
	case s.N == 0:
		return "–"
	case s.N == 1:
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s – %s)", number(s.Median), number(s.Min), number(s.Max))
}

// number has three significant digits, and no fewer than before the point.
func number(v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return grouped(text)
}

// grouped puts commas between thousands.
func grouped(text string) string {
	whole, fraction, _ := strings.Cut(text, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return sign + whole
}

func percent(share float64) string { return number(100*share) + " %" }

// cell keeps a text within its cell of a table.
func cell(text string) string {
	return strings.NewReplacer("\n", " ", "|", "\\|").Replace(text)
}
