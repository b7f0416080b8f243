package testvm

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/baton-lb/baton/internal/cache"
	"github.com/baton-lb/baton/internal/testvm/wire"
)

// Run starts a machine, has it run the commands, and ends it. It returns the
// statuses of the commands that have ended, in order. An error is about the machine:
// see the package comment.
func Run(ctx context.Context, s Spec) ([]Status, error) {
	s = s.withDefaults()
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("linux %s: %w: machines are amd64, and this is %s", s.Kernel, ErrUnavailable, runtime.GOARCH)
	}
	kept, err := cache.Open(s.Cache, cacheName)
	if err != nil {
		return nil, err
	}
	k, err := openKernel(ctx, kept, s.Kernel, s.Log)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	work, err := os.MkdirTemp("", "baton-testvm-")
	if err != nil {
		return nil, fmt.Errorf("make work directory: %w", err)
	}
	defer os.RemoveAll(work)
	return s.boot(ctx, k, work)
}

// cacheName is the directory of kernels in the user's cache directory.
const cacheName = "baton-testvm"

// Fetch gets a kernel into the cache and says which package it is from.
func Fetch(ctx context.Context, s Spec) (string, error) {
	s = s.withDefaults()
	kept, err := cache.Open(s.Cache, cacheName)
	if err != nil {
		return "", err
	}
	k, err := openKernel(ctx, kept, s.Kernel, s.Log)
	if err != nil {
		return "", err
	}
	return k.name, k.Close()
}

func (s Spec) boot(ctx context.Context, k kernel, work string) ([]Status, error) {
	timed, cancel := context.WithTimeoutCause(ctx, s.Timeout, ErrTimeout)
	defer cancel()
	began := time.Now()
	m, err := s.startMachine(timed, k, work)
	if err != nil {
		return nil, err
	}
	defer func() {
		m.kill()
		// The time it would take on a host that does nothing else is near half of the CPU's.
		cpu := m.cmd.ProcessState.UserTime() + m.cmd.ProcessState.SystemTime()
		s.Log.Info("ended", "took", time.Since(began).Round(time.Second), "cpu", cpu.Round(time.Second))
	}()
	c := &conversation{spec: s, kernel: k, began: began}
	err = c.listen(m.stream)
	switch {
	case err == nil:
		return c.statuses, nil
	case timed.Err() != nil:
		m.kill()
		return c.statuses, fmt.Errorf("linux %s: %w after %v; %s", s.Kernel, context.Cause(timed), s.Timeout, m.lastWords())
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		m.kill()
		return c.statuses, fmt.Errorf("linux %s: %w; %s", s.Kernel, ErrDied, m.lastWords())
	}
	return c.statuses, fmt.Errorf("linux %s: %w", s.Kernel, err)
}

// conversation is the host's side of what the guest says.
type conversation struct {
	spec     Spec
	kernel   kernel
	began    time.Time
	statuses []Status
}

// listen returns nil when the guest has said everything.
func (c *conversation) listen(stream io.Reader) error {
	files := newReceiver(c.spec.Out)
	defer files.finish()
	d := gob.NewDecoder(stream)
	for {
		var m wire.Message
		if err := d.Decode(&m); err != nil {
			return err
		}
		switch {
		case m.Files != nil:
			if _, err := files.Write(m.Files); err != nil {
				return fmt.Errorf("unpack files from the machine: %w", err)
			}
		case m.End:
			return files.finish()
		default:
			if err := c.heed(m); err != nil {
				return err
			}
		}
	}
}

func (c *conversation) heed(m wire.Message) error {
	switch {
	case m.Booted != "":
		c.spec.Log.Info("booted", "linux", m.Booted, "package", c.kernel.name, "took", time.Since(c.began).Round(100*time.Millisecond))
	case m.Trouble != "":
		c.spec.Log.Warn("guest", "trouble", m.Trouble)
	}
	if len(c.statuses) >= len(c.spec.Commands) {
		return nil
	}
	running := c.spec.Commands[len(c.statuses)]
	if err := pass(running.Stdout, m.Out); err != nil {
		return err
	}
	if err := pass(running.Stderr, m.Err); err != nil {
		return err
	}
	if m.Status != nil {
		c.statuses = append(c.statuses, *m.Status)
		if running.Ended != nil {
			running.Ended(*m.Status)
		}
	}
	return nil
}

func pass(w io.Writer, b []byte) error {
	if w == nil || len(b) == 0 {
		return nil
	}
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("pass on output: %w", err)
	}
	return nil
}
