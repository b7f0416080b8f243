package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/admin/client"
	"github.com/baton-lb/baton/lb/store"
)

// targetUse is what drain and undrain take.
const targetUse = "SERVICE | SERVICE/IP:PORT | IP:PORT"

func newDrainCommand() *cobra.Command {
	return newTargetCommand(&cobra.Command{
		Use:   "drain " + targetUse,
		Short: "Send no new flows to a service's backends, or to one of them",
		Long: `Send no new flows there; open ones go on. It holds over reloads of the
configuration and over upgrades, until ` + "`baton undrain`" + ` or a restart.`,
	}, (*client.Client).Drain, "no new flows")
}

func newUndrainCommand() *cobra.Command {
	return newTargetCommand(&cobra.Command{
		Use:   "undrain " + targetUse,
		Short: "Take a drain back",
		Long:  "Take back a drain of the same target.",
	}, (*client.Client).Undrain, "takes new flows")
}

type targetCall func(*client.Client, context.Context, string) (admin.TargetResult, error)

func newTargetCommand(cmd *cobra.Command, call targetCall, wanted string) *cobra.Command {
	var t target
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := oneArg(targetUse)(cmd, args); err != nil {
			return err
		}
		_, err := store.ParseTarget(args[0])
		return badUsage(cmd, err)
	}
	cmd.ValidArgsFunction = completeTarget(&t)
	t.register(cmd)
	format := registerOutput(cmd, asTable, asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return t.ask(cmd, func(ctx context.Context, c *client.Client) error {
			res, err := call(c, ctx, args[0])
			if err != nil {
				return err
			}
			if format.value == asJSON {
				return writeJSON(cmd.OutOrStdout(), res)
			}
			return tellTarget(cmd.OutOrStdout(), res, wanted)
		})
	}
	return cmd
}

// tellTarget says of each backend what it does now.
func tellTarget(out io.Writer, res admin.TargetResult, wanted string) error {
	if len(res.Backends) == 0 {
		_, err := fmt.Fprintf(out, "%s: done; there is no such backend now\n", res.Target)
		return err
	}
	for _, b := range res.Backends {
		now := wanted
		if takes := b.State == admin.BackendReady; takes != (wanted == "takes new flows") {
			now = "still no new flows, its state is " + string(b.State)
		}
		if _, err := fmt.Fprintf(out, "%s/%s: %s, %s open\n", b.Service, b.Backend, now, plural(b.Flows, "flow")); err != nil {
			return err
		}
	}
	return nil
}
