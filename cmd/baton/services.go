package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/admin/client"
	"github.com/baton-lb/baton/internal/flow"
)

// newListCommand makes a command that shows a list of the API.
func newListCommand(cmd *cobra.Command, v *view, filterNames ...string) *cobra.Command {
	var t target
	var f filters
	cmd.Args = noArgs
	f.register(cmd, &t, filterNames...)
	t.register(cmd)
	format := registerOutput(cmd, asTable, asJSON, asWide)
	cmd.Flags().BoolVarP(&v.watch, "watch", "w", false, "show it again when it changes")
	prepare := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := f.check(cmd); err != nil {
			return err
		}
		v.format, v.query = format.value, f.spec.Values()
		if prepare == nil {
			return nil
		}
		return prepare(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return t.ask(cmd, func(ctx context.Context, c *client.Client) error {
			return v.show(ctx, c, cmd.OutOrStdout())
		})
	}
	return cmd
}

func newServicesCommand() *cobra.Command {
	v := &view{path: "/v1/services"}
	v.draw = func(list io.Reader, out io.Writer, limit int) error {
		return drawServices(list, out, v.format == asWide, limit)
	}
	return newListCommand(&cobra.Command{
		Use:   "services",
		Short: "List services, their frontends and how those are",
		Long:  "List services: each frontend, whether it serves and why not, backends that take\nnew flows, open flows.\n",
	}, v, "service", "frontend", "backend", "protocol")
}

func drawServices(list io.Reader, out io.Writer, wide bool, limit int) error {
	t := newTable(out, wide, []column{
		{title: "SERVICE", cut: true},
		{title: "FRONTEND", cut: true},
		{title: "STATUS"},
		{title: "MODE"},
		{title: "READY", right: true},
		{title: "FLOWS", right: true},
		{title: "REASON", prose: true},
	})
	t.limit = limit
	err := client.List(list, func(s *admin.Service) error {
		ready, flows := fmt.Sprintf("%d/%d", s.Ready, s.Backends), fmt.Sprint(s.Flows)
		why := s.NotSteered
		for _, fe := range s.Frontends {
			if err := t.add(s.Name, fe.Frontend, fe.Status, string(s.Mode), ready, flows, reasonOf(fe, cmp.Or(why, fe.NotSteered))); err != nil {
				return err
			}
			ready, flows, why = " ", " ", "" // the service's, once
		}
		return nil
	})
	if err != nil {
		return err
	}
	return endTable(t, out)
}

// reasonOf is a frontend's reason without its address, which stands beside it, and why it is not steered.
func reasonOf(fe admin.Frontend, notSteered flow.NotSteered) string {
	reason := strings.TrimPrefix(fe.Reason, strings.Replace(fe.Frontend, "://", " ", 1)+": ")
	switch {
	case notSteered == "":
		return reason
	case reason == "":
		return "not steered: " + string(notSteered)
	}
	return reason + "; not steered: " + string(notSteered)
}
