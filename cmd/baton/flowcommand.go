package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/baton-lb/baton/internal/admin/client"
	"github.com/baton-lb/baton/internal/flow"
)

// flowAnswer is what came of something that was to be done with a flow.
type flowAnswer struct {
	result  any // as JSON shows it
	flow    flow.View
	what    string // for people
	notFine error  // likewise, instead
}

// newFlowCommand completes a command that does something with one flow.
func newFlowCommand(cmd *cobra.Command, act func(ctx context.Context, c *client.Client, id string) (flowAnswer, error)) *cobra.Command {
	var t target
	cmd.Args, cmd.ValidArgsFunction = oneFlow, completeFlow(&t)
	t.register(cmd)
	format := registerOutput(cmd, asTable, asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return t.ask(cmd, func(ctx context.Context, c *client.Client) error {
			a, err := act(ctx, c, args[0])
			if err != nil {
				return err
			}
			return a.tell(cmd, format.value)
		})
	}
	return cmd
}

func (a *flowAnswer) tell(cmd *cobra.Command, format output) error {
	if format == asJSON {
		if err := writeJSON(cmd.OutOrStdout(), a.result); err != nil || a.notFine == nil {
			return err
		}
		return errTold
	}
	if a.notFine != nil {
		return a.notFine
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s (%s)\n", a.flow.ID, a.what, describeFlow(&a.flow))
	return err
}
