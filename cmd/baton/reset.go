package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/baton-lb/baton/internal/admin/client"
)

func newResetCommand() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "reset ID",
		Short: "End a flow with a reset to both sides",
		Long: `End the flow with this id, as ` + "`baton flows`" + ` shows it; its first digits are enough,
four or more, when no other flow begins like that.`,
		Args:              oneFlow,
		ValidArgsFunction: completeFlow(&t),
	}
	t.register(cmd)
	format := registerOutput(cmd, asTable, asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return t.ask(cmd, func(ctx context.Context, c *client.Client) error {
			res, err := c.Reset(ctx, args[0])
			if err != nil {
				return err
			}
			if format.value == asJSON {
				return writeJSON(cmd.OutOrStdout(), res)
			}
			what := "reset"
			if !res.Ended {
				what = "reset asked for, not seen to end yet"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s (%s)\n", res.Flow.ID, what, describeFlow(&res.Flow))
			return err
		})
	}
	return cmd
}
