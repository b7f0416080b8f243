package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/admin/client"
)

func newBackendsCommand() *cobra.Command {
	v := &view{path: "/v1/backends"}
	v.draw = func(list io.Reader, out io.Writer, limit int) error {
		return drawBackends(list, out, v.format == asWide, limit)
	}
	return newListCommand(&cobra.Command{
		Use:   "backends",
		Short: "List backends, their state and health",
		Long:  "List backends: what they are meant to do, how they are, their open flows and\nfailed attempts.\n",
	}, v, "service", "frontend", "backend", "protocol")
}

func drawBackends(list io.Reader, out io.Writer, wide bool, limit int) error {
	t := newTable(out, wide, []column{
		{title: "SERVICE", cut: true},
		{title: "BACKEND", cut: true},
		{title: "STATE"},
		{title: "HEALTH"},
		{title: "WEIGHT", right: true},
		{title: "FLOWS", right: true},
		{title: "FAILURES", right: true},
		{title: "MAX", right: true, wide: true},
		{title: "PRIORITY", right: true, wide: true},
		{title: "ZONE", wide: true},
		{title: "NODE", wide: true},
		{title: "REASON", prose: true},
	})
	t.limit = limit
	err := client.List(list, func(b *admin.Backend) error {
		maximum := ""
		if b.MaxConnections > 0 {
			maximum = fmt.Sprint(b.MaxConnections)
		}
		return t.add(b.Service, b.Backend.String(), string(b.State), string(b.Health), fmt.Sprint(b.Weight),
			fmt.Sprint(b.Flows), fmt.Sprint(b.Failures), maximum, fmt.Sprint(b.Priority), b.Zone, b.Node, whyNot(b))
	})
	if err != nil {
		return err
	}
	return endTable(t, out)
}

// whyNot says why a backend does not take new flows, if it does not.
func whyNot(b *admin.Backend) string {
	switch {
	case b.HealthReason != "":
		return b.HealthReason
	case b.Drained:
		return "baton drain"
	case b.State == admin.BackendReady && b.Weight == 0:
		return "weight 0"
	}
	return ""
}
