package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/baton-lb/baton/internal/admin/doctor"
	"github.com/baton-lb/baton/lb/relay/capture"
	"github.com/baton-lb/baton/lb/source/file"
)

func newDoctorCommand() *cobra.Command {
	var path, stateDir string
	var proxy bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this kernel and this user can do",
		Long: `Probe what this host allows: the kernel, capabilities, limits, and on which
devices flows could be carried in the kernel. Each answer is present, absent (with
what to do), or inconclusive (with why). With --config also how each frontend would
be captured, and what stands in the way; then the exit code is 1 when something
that the file asks for cannot work. With --kubernetes it is a KubeProxyConfiguration,
as it is for run. Nothing is changed.`,
		Args: noArgs,
	}
	registerConfig(cmd, &path)
	registerProxyConfig(cmd, &proxy)
	cmd.Flags().StringVar(&stateDir, "state-dir", defaultStateDir, "state directory of the instance")
	_ = cmd.MarkFlagDirname("state-dir")
	format := registerOutput(cmd, asTable, asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o := doctor.Options{
			StateDir: stateDir, Probes: append(kernelProbes(), handoffProbes(stateDir)...), Guard: tryGuard, Handoff: handoffForDoctor(),
			Transparent: tryTransparent,
		}
		if path != "" || proxy {
			config, err := loadForDoctor(path, proxy)
			if err != nil {
				return err
			}
			c := forDoctor(config)
			o.Config = &c
		}
		r := doctor.Examine(cmd.Context(), o)
		var err error
		if format.value == asJSON {
			err = writeJSON(cmd.OutOrStdout(), r)
		} else {
			err = tellReport(cmd.OutOrStdout(), r)
		}
		if err == nil && !r.Fine {
			err = errTold
		}
		return err
	}
	return cmd
}

// loadForDoctor reads a file, or what one of kube-proxy's comes to.
func loadForDoctor(path string, proxy bool) (*file.Config, error) {
	if !proxy {
		return file.Load(path)
	}
	k := kubeOptions{api: true, metrics: defaultMetricsAddress, set: func(string) bool { return false }}
	_, config, err := k.settings(path)
	return config, err
}

// forDoctor is what the doctor wants to know of a file.
func forDoctor(c *file.Config) doctor.Config {
	mode, _ := capture.ParseMode(string(c.Capture)) // file.Load has checked it
	return doctor.Config{
		Services: c.Services, Capture: mode, HTTP: c.Admin.HTTP, SourceAddresses: c.Source.Addresses,
	}
}

// doctor examines the host from inside a running instance: with its rights and
// limits, and what it serves now.
func (in *instance) doctor(ctx context.Context) any {
	return doctor.Examine(ctx, doctor.Options{
		StateDir: in.o.stateDir, Serving: true, Probes: append(kernelProbes(), handoffProbes(in.o.stateDir)...), Guard: tryGuard,
		Handoff: handoffForDoctor(), Transparent: tryTransparent,
	})
}

// listedFrontends is how many frontends are listed for people.
const listedFrontends = 50

func tellReport(w io.Writer, r doctor.Report) error {
	out := &errWriter{w: w}
	for _, f := range r.Probes {
		tellFinding(out, f.Probe, f.Answer, f.Detail, f.Todo)
	}
	fmt.Fprintln(out)
	for _, p := range r.Paths {
		tellFinding(out, "path "+string(p.Path), p.Answer, p.Detail, p.Todo)
	}
	if len(r.Devices) > 0 {
		fmt.Fprintln(out)
		tellDevices(out, r.Devices)
	}
	if len(r.Frontends) > 0 {
		fmt.Fprintln(out)
		tellFrontends(out, r.Frontends)
	}
	tellList(out, "warning: ", r.Warnings)
	tellList(out, "problem: ", r.Problems)
	return out.err
}

// Columns of a finding.
const (
	probeColumn  = 22
	answerColumn = 14
)

func tellFinding(out io.Writer, probe string, answer doctor.Answer, detail, todo string) {
	head := fmt.Sprintf("%-*s%-*s", probeColumn, probe, answerColumn, answer)
	tellWrapped(out, head, detail)
	if todo != "" && answer != doctor.Present {
		tellWrapped(out, strings.Repeat(" ", len(head))+"-> ", todo)
	}
}

func tellFrontends(out io.Writer, all []doctor.Frontend) {
	t := newTable(out, false, []column{
		{title: "SERVICE", cut: true}, {title: "FRONTEND", cut: true}, {title: "CAPTURE"}, {title: "WHY", prose: true},
	})
	t.limit = listedFrontends
	for _, f := range all {
		why := f.Why
		if len(f.Problems) > 0 {
			why = "see below: " + f.Problems[0]
		}
		_ = t.add(f.Service, f.Frontend, f.Capture, why)
	}
	_ = endTable(t, out)
}

// listedDevices is how many devices are listed for people.
const listedDevices = 20

func tellDevices(out io.Writer, all []doctor.Device) {
	t := newTable(out, false, []column{{title: "DEVICE", cut: true}, {title: "PROGRAMS"}, {title: "XDP", prose: true}, {title: "WHY", prose: true}})
	t.limit = listedDevices
	for _, d := range all {
		_ = t.add(d.Device, cmp.Or(d.How, "none"), d.XDP, d.Why)
	}
	_ = endTable(t, out)
}

func tellList(out io.Writer, head string, list []string) {
	if len(list) > 0 {
		fmt.Fprintln(out)
	}
	for _, text := range list {
		tellWrapped(out, head, text)
	}
}

// tellWrapped prints text behind head, in lines that fit, indented like the
// first.
func tellWrapped(out io.Writer, head, text string) {
	indent := strings.Repeat(" ", utf8.RuneCountInString(head))
	line := head
	for _, word := range strings.Fields(text) {
		full := utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > tableWidth
		switch {
		case full && strings.TrimSpace(line) != "" && line != head:
			fmt.Fprintln(out, strings.TrimRight(line, " "))
			line = indent + word
		case line == head || line == indent:
			line += word
		default:
			line += " " + word
		}
	}
	fmt.Fprintln(out, strings.TrimRight(line, " "))
}

// errWriter keeps the first error.
type errWriter struct {
	w   io.Writer
	err error
}

func (e *errWriter) Write(p []byte) (int, error) {
	if e.err == nil {
		_, e.err = e.w.Write(p)
	}
	return len(p), e.err
}
