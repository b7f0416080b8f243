package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/baton-lb/baton/internal/admin/client"
)

// Where an instance is found when nobody says otherwise.
const (
	defaultStateDir = "/run/baton"
	defaultSocket   = defaultStateDir + "/admin.sock"
)

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "baton",
		Short: "Baton: an L4 load balancer that shows what it does",
		Long: `Baton balances connections to the backends of services, and shows for each one
why it went where it went, and how it ended.

Exit codes: 0 fine, 1 what was asked about is not fine, 2 the command line is
wrong.`,
		Args:                       aCommand,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
	}
	root.SetFlagErrorFunc(badUsage)
	root.AddCommand(
		newRunCommand(), newCheckCommand(), newDoctorCommand(), newCleanupCommand(), newVersionCommand(),
		newServicesCommand(), newBackendsCommand(), newFlowsCommand(), newTraceCommand(),
		newDrainCommand(), newUndrainCommand(), newHandoffCommand(), newResetCommand(), newReadyCommand(), newDemoCommand(),
	)
	return root
}

// target is the instance that a client command asks.
type target struct{ socket string }

// register adds --socket to a client command.
func (t *target) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.socket, "socket", defaultSocket, "admin socket of the instance")
	_ = cmd.MarkFlagFilename("socket", "sock")
}

// ask calls do with a client, and a context that an interrupt ends.
func (t *target) ask(cmd *cobra.Command, do func(context.Context, *client.Client) error) error {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	c := client.New(t.socket)
	defer c.Close()
	err := do(ctx, c)
	if ctx.Err() != nil {
		return nil // it was told to stop
	}
	return err
}
