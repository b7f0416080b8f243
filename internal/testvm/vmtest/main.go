package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/baton-lb/baton/internal/testvm/suite"
)

// Exit codes, those of the other commands.
const (
	exitFine  = 0
	exitFault = 1
	exitUsage = 2
)

// tools are the programs that the tests start in the machine.
const tools = "cat,ip,nft,readlink,sh,sleep,tc"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := start(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func start(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parse(args, stdout, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitFine
	case err != nil:
		fmt.Fprintln(stderr, "vmtest:", err)
		return exitUsage
	}
	if err := s.Run(ctx); err != nil {
		fmt.Fprintln(stderr, "vmtest:", err)
		return exitFault
	}
	return exitFine
}

func parse(args []string, stdout, stderr io.Writer) (suite.Suite, error) {
	s := suite.Suite{Out: stdout, Log: slog.New(slog.NewTextHandler(stderr, nil))}
	f := flag.NewFlagSet("vmtest", flag.ContinueOnError)
	f.SetOutput(stderr)
	list := f.String("list", "internal/testvm/tests.txt", "`file` with the list of tests")
	kernels := f.String("kernels", "6.1,6.12", "`versions` of Debian's kernels")
	programs := f.String("tools", tools, "`programs` that tests start")
	f.StringVar(&s.Only, "only", "", "only packages whose path contains this `part`")
	f.DurationVar(&s.Time, "time", 0, "time for one package; default 10m")
	verbose := f.Bool("v", false, "show all that the tests write")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() != 0 {
		return s, fmt.Errorf("what is %q?", f.Args())
	}
	s.Kernels, s.Tools = strings.Split(*kernels, ","), strings.Split(*programs, ",")
	if *verbose {
		s.All = stdout
	}
	text, err := os.ReadFile(*list)
	if err != nil {
		return s, err
	}
	if s.List, err = suite.ParseList(string(text)); err != nil {
		return s, fmt.Errorf("%s: %w", *list, err)
	}
	return s, nil
}
