package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/baton-lb/baton/lb/source/file"
)

// Exit codes.
const (
	exitFine    = 0
	exitNotFine = 1 // what was asked about is not fine
	exitUsage   = 2 // the command line is wrong
)

// The main thread stays where it is: a thread that could not be brought back from a
// network namespace is thrown away, and this one cannot be.
func init() { runtime.LockOSThread() }

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs one command line and returns the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return exitFine
	}
	report(stderr, err)
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitNotFine
}

// report says what went wrong, a line for each thing. Lines that begin with
// their file stay as they are, for editors to find.
func report(w io.Writer, err error) {
	if errors.Is(err, errTold) {
		return
	}
	prefix := "baton: "
	if errors.As(err, new(file.Faults)) {
		prefix = ""
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintln(w, prefix+strings.TrimSuffix(line, "\n"))
	}
}
