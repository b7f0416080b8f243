package testvm

import (
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/baton-lb/baton/internal/testvm/wire"
)

// Errors of a run that has no status to give.
var (
	// ErrUnavailable says that this machine can have no such kernel.
	ErrUnavailable = errors.New("kernel not available")
	// ErrTimeout says that the machine did not end in its time and was killed.
	ErrTimeout = errors.New("virtual machine timed out")
	// ErrDied says that the machine ended before its commands did: a panic, or a
	// kernel that did not start.
	ErrDied = errors.New("virtual machine died")
)

// Spec is a machine and what it is to do. Kernel is needed, the rest has defaults.
type Spec struct {
	Kernel   string // version as Debian names it: "6.1", "6.12"
	Commands []Command

	Files   []File
	Tools   []string      // programs of the host, copied to /usr/bin with their libraries
	Modules []string      // to load first; default: none, the kernel loads on demand
	Out     string        // a directory that gets the files from /out of the machine
	CPUs    int           // default 2
	Memory  int           // MiB; default 2048
	Timeout time.Duration // of the whole run once the machine starts; default 10 minutes

	Log   *slog.Logger // what takes time: fetching, unpacking; default: silence
	Cache string       // directory; default: baton-testvm in the user's cache directory
}

// Command is one program of a job. They run one after the other, whatever became of
// the one before.
type Command struct {
	Args    []string
	Env     []string      // "KEY=value"
	Dir     string        // default /root; made if it is missing
	Timeout time.Duration // then it is killed; default: only the machine's

	Stdout io.Writer // default: discarded
	Stderr io.Writer // the same; the same writer twice keeps the order of writing

	Ended func(Status) // called when the command has ended, before the next starts
}

// File is a file or directory that the machine gets from the host.
type File struct {
	Source string
	Path   string // absolute, in the machine
}

// Status is how a command ended.
type Status = wire.Status

func (s Spec) withDefaults() Spec {
	if s.CPUs == 0 {
		s.CPUs = 2
	}
	if s.Memory == 0 {
		s.Memory = 2048
	}
	if s.Timeout == 0 {
		s.Timeout = 10 * time.Minute
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	return s
}

func (s Spec) job() wire.Job {
	j := wire.Job{Modules: s.Modules, Collect: s.Out != ""}
	for _, c := range s.Commands {
		merge := c.Stdout != nil && c.Stdout == c.Stderr
		j.Commands = append(j.Commands, wire.Command{Args: c.Args, Env: c.Env, Dir: c.Dir, Timeout: c.Timeout, Merge: merge})
	}
	return j
}
