package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/baton-lb/baton/internal/admin/client"
)

// Two processes may be there during an upgrade, at the same addresses. Whoever waits for
// one of them to serve has to ask for that one.
func newReadyCommand() *cobra.Command {
	var t target
	pid := 0
	cmd := &cobra.Command{
		Use:   "ready",
		Short: "Say whether the instance takes clients",
		Long: `Ask the instance whether new clients should be sent to it: exit code 0 when they
should, else 1 and why not. With --pid it has to be that process; in a container of
its own that is 1, and an instance in another container is none.`,
		Args: noArgs,
	}
	t.register(cmd)
	cmd.Flags().IntVar(&pid, "pid", 0, "the process that is to be ready, as its id is here (default: whichever serves)")
	format := registerOutput(cmd, asTable, asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if pid < 0 {
			return badUsage(cmd, fmt.Errorf("--pid %d is no process", pid))
		}
		return t.ask(cmd, func(ctx context.Context, c *client.Client) error {
			answer, err := c.Ready(ctx)
			if err != nil {
				return err
			}
			if answer.Ready && pid != 0 {
				answer.Ready, answer.Reason = isProcess(answer.PID, pid)
			}
			if format.value == asJSON {
				err = writeJSON(cmd.OutOrStdout(), answer)
			} else if answer.Ready {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), "ready")
			}
			switch {
			case err != nil || answer.Ready:
				return err
			case format.value == asJSON:
				return errTold
			}
			return errors.New(answer.Reason)
		})
	}
	return cmd
}

// isProcess says whether the process that answers is the one that was meant.
func isProcess(got, want int) (ok bool, why string) {
	switch got {
	case want:
		return true, ""
	case 0:
		return false, "a process of another container serves"
	}
	return false, fmt.Sprintf("process %d serves", got)
}
