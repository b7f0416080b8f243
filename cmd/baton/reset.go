package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/baton-lb/baton/internal/admin/client"
)

func newResetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reset ID",
		Short: "End a flow with a reset to both sides",
		Long: `End the flow with this id, as ` + "`baton flows`" + ` shows it; its first digits are enough,
four or more, when no other flow begins like that.`,
	}
	return newFlowCommand(cmd, func(ctx context.Context, c *client.Client, id string) (a flowAnswer, err error) {
		res, err := c.Reset(ctx, id)
		if err != nil {
			return a, err
		}
		a = flowAnswer{result: res, flow: res.Flow, what: "reset"}
		if !res.Ended {
			a.what = "reset asked for, not seen to end yet"
		}
		return a, nil
	})
}
