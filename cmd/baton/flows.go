package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/admin/client"
	"github.com/baton-lb/baton/internal/flow"
)

func newFlowsCommand() *cobra.Command {
	v := &view{path: "/v1/flows"}
	var ended bool
	cmd := &cobra.Command{
		Use:   "flows",
		Short: "List open flows, or the last ended ones",
		Long:  "List the open flows, the oldest first, on whatever path; with --ended the last\nones that have ended.\n",
	}
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if ended {
			v.query.Set("ended", "1")
		}
		return nil
	}
	cmd.Flags().BoolVar(&ended, "ended", false, "the last flows that have ended")
	v.draw = func(list io.Reader, out io.Writer, limit int) error {
		states := v.query["state"]
		if ended || len(states) == 1 && states[0] == string(flow.Ended) {
			return drawEnded(list, out, v.format == asWide, limit)
		}
		return drawFlows(list, out, v.format == asWide, limit)
	}
	return newListCommand(cmd, v, admin.FilterNames()...)
}

func drawFlows(list io.Reader, out io.Writer, wide bool, limit int) error {
	t := newTable(out, wide, []column{
		{title: "ID"},
		{title: "PROTO", wide: true},
		{title: "SERVICE", cut: true},
		{title: "CLIENT", cut: true},
		{title: "FRONTEND", wide: true},
		{title: "BACKEND", cut: true},
		{title: "PICKED", wide: true},
		{title: "PATH"},
		{title: "STATE"},
		{title: "AGE", right: true},
		{title: "BYTES", right: true, short: true},
		{title: "TO-BACKEND", right: true, wide: true},
		{title: "TO-CLIENT", right: true, wide: true},
		{title: "NOT-OFFLOADED", wide: true},
		{title: "BACKEND-SEES", wide: true},
	})
	t.limit = limit
	now := time.Now()
	err := client.List(list, func(v *flow.View) error {
		return t.add(v.ID.String(), v.Protocol.String(), v.Service, addrPort(v.Client), addrPort(v.Frontend),
			addrPort(v.Backend), string(v.Picked), string(v.Path), string(v.State), humanAge(now.Sub(v.StartedAt)),
			humanBytes(v.BytesToBackend+v.BytesToClient), humanBytes(v.BytesToBackend), humanBytes(v.BytesToClient),
			string(v.NotOffloaded), backendSees(v))
	})
	if err != nil {
		return err
	}
	return endTable(t, out)
}

// backendSees is which address of the client that is, where its service asks to keep
// it, and why not its own.
func backendSees(v *flow.View) string {
	if v.NotTransparent != "" {
		return fmt.Sprintf("%s (%s)", v.ClientAddress, v.NotTransparent)
	}
	return string(v.ClientAddress)
}

func drawEnded(list io.Reader, out io.Writer, wide bool, limit int) error {
	t := newTable(out, wide, []column{
		{title: "ID"},
		{title: "PROTO", wide: true},
		{title: "SERVICE", cut: true},
		{title: "CLIENT", cut: true},
		{title: "FRONTEND", wide: true},
		{title: "BACKEND", cut: true},
		{title: "PICKED", wide: true},
		{title: "PATH", wide: true},
		{title: "BY"},
		{title: "REASON"},
		{title: "ENDED", wide: true},
		{title: "LASTED", right: true},
		{title: "BYTES", right: true, short: true},
		{title: "TO-BACKEND", right: true, wide: true},
		{title: "TO-CLIENT", right: true, wide: true},
	})
	t.limit = limit
	err := client.List(list, func(v *flow.View) error {
		return t.add(v.ID.String(), v.Protocol.String(), v.Service, addrPort(v.Client), addrPort(v.Frontend),
			addrPort(v.Backend), string(v.Picked), string(v.Path), string(v.EndedBy), string(v.Reason),
			v.EndedAt.Format(time.DateTime), humanAge(v.EndedAt.Sub(v.StartedAt)),
			humanBytes(v.BytesToBackend+v.BytesToClient), humanBytes(v.BytesToBackend), humanBytes(v.BytesToClient))
	})
	if err != nil {
		return err
	}
	return endTable(t, out)
}
