package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes, those of the other commands.
const (
	exitFine  = 0
	exitFault = 1
	exitUsage = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := start(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func start(ctx context.Context, args []string) int {
	o, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitFine
	case err != nil:
		fmt.Fprintln(os.Stderr, "perf:", err)
		return exitUsage
	}
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "perf:", err)
		return exitFault
	}
	return exitFine
}
