package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// usageError is a command line that is wrong: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// errTold is wrapped when the output says already what is not fine.
var errTold = errors.New("not fine")

// badUsage makes a usageError of err that says where to read on.
func badUsage(cmd *cobra.Command, err error) error {
	if err == nil || errors.As(err, new(usageError)) {
		return err
	}
	return usageError{fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return badUsage(cmd, fmt.Errorf("unexpected argument %q", args[0]))
}

// oneArg wants exactly one argument, called name.
func oneArg(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 || args[0] == "":
			return badUsage(cmd, fmt.Errorf("%s is missing", name))
		case len(args) > 1:
			return badUsage(cmd, fmt.Errorf("unexpected argument %q: one %s at a time", args[1], name))
		}
		return nil
	}
}

// oneFlow wants exactly one argument that can be the id of a flow, or its start.
func oneFlow(cmd *cobra.Command, args []string) error {
	if err := oneArg("ID")(cmd, args); err != nil {
		return err
	}
	id := strings.ToLower(args[0])
	if len(id) < 4 || len(id) > 16 || strings.Trim(id, "0123456789abcdef") != "" {
		return badUsage(cmd, fmt.Errorf("%q is no flow's id: want the 16 hex digits that `baton flows` prints, or the first of them, four or more", args[0]))
	}
	return nil
}

// aCommand refuses what is no command of ours, and suggests one that is.
func aCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q", args[0])
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		err = fmt.Errorf("%w: did you mean %s?", err, strings.Join(near, " or "))
	}
	return badUsage(root, err)
}
