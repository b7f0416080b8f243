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
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/baton-lb/baton/internal/testvm"
)

// Exit codes beside the program's own.
const (
	exitTimeout = 124
	exitDied    = 125
	exitNone    = 126
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := start(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func start(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	spec, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	var statuses []testvm.Status
	if err == nil {
		spec.Commands[0].Stdout, spec.Commands[0].Stderr = stdout, stderr
		statuses, err = testvm.Run(ctx, spec)
	}
	if err != nil {
		fmt.Fprintln(stderr, "vmrun:", err)
	}
	switch {
	case errors.Is(err, testvm.ErrTimeout):
		return exitTimeout
	case errors.Is(err, testvm.ErrDied):
		return exitDied
	case err != nil || len(statuses) != 1:
		return exitNone
	}
	return statuses[0].Code
}

func parse(args []string, stderr io.Writer) (testvm.Spec, error) {
	var s testvm.Spec
	var verbose bool
	f := flag.NewFlagSet("vmrun", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintln(stderr, "usage: vmrun [FLAGS] -- PROGRAM [ARGUMENT...]")
		f.PrintDefaults()
	}
	f.StringVar(&s.Kernel, "kernel", "6.1", "`version` of Debian's kernel")
	f.IntVar(&s.CPUs, "cpus", 2, "processors")
	f.IntVar(&s.Memory, "memory", 2048, "`MiB` of memory")
	f.DurationVar(&s.Timeout, "timeout", 0, "time for the machine to end in; default 10m")
	f.StringVar(&s.Out, "out", "", "host `directory` for the files that the program leaves in /out")
	f.BoolVar(&verbose, "v", false, "tell what the machine does")
	var env []string
	f.Func("env", "`KEY=VALUE` for the program, any number of times", func(v string) error {
		env = append(env, v)
		return nil
	})
	f.Func("file", "`file` or directory to put into /root, any number of times; or SOURCE:PATH", func(v string) error {
		source, at, ok := strings.Cut(v, ":")
		if !ok {
			at = path.Join("/root", filepath.Base(source))
		}
		s.Files = append(s.Files, testvm.File{Source: source, Path: at})
		return nil
	})
	f.Func("tools", "`programs` of the host to put into the PATH", func(v string) error {
		s.Tools = append(s.Tools, strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' })...)
		return nil
	})
	f.Func("modules", "kernel `modules` to load first", func(v string) error {
		s.Modules = append(s.Modules, strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' })...)
		return nil
	})
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() == 0 {
		return s, errors.New("no program named")
	}
	s.Commands = []testvm.Command{{Args: f.Args(), Env: env}}
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelInfo
	}
	s.Log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	return s, nil
}
