package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testvm/wire"
)

// notFound is the code of a command that cannot be started, as shells have it.
const notFound = 127

// run runs one command, passes on what it writes, and ends what it left running.
func (p *port) run(c wire.Command) wire.Status {
	began := time.Now()
	status, err := p.command(c)
	if err != nil {
		p.trouble(fmt.Errorf("run %q: %w", c.Args, err))
		status.Code = notFound
	}
	status.Elapsed = time.Since(began)
	return status
}

func (p *port) command(c wire.Command) (status wire.Status, err error) {
	if len(c.Args) == 0 {
		return status, errors.New("no program named")
	}
	if c.Dir == "" {
		c.Dir = "/root"
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return status, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	if c.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
	}
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Env, cmd.Dir = append(environment[:len(environment):len(environment)], c.Env...), c.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}

	wait, err := p.forward(cmd, c.Merge)
	if err != nil {
		return status, err
	}
	err = cmd.Wait()
	status.TimedOut = ctx.Err() != nil
	killRest()
	wait()
	status.Code, err = exitCode(cmd.ProcessState, err)
	return status, err
}

// forward starts a command whose outputs travel to the host. The returned function
// waits until every writer has closed them: what a command leaves running holds
// them too. Pipes, because a virtio port can be open only once, and programs open
// /dev/stderr again.
func (p *port) forward(cmd *exec.Cmd, merge bool) (wait func(), err error) {
	var passing sync.WaitGroup
	var ours []io.Closer // the command has them when it has started
	defer func() {
		for _, c := range ours {
			_ = c.Close()
		}
	}()
	pipe := func(m func(b []byte) wire.Message) (*os.File, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		ours = append(ours, w)
		passing.Go(func() {
			defer r.Close()
			_, _ = io.Copy(sender(func(b []byte) { p.send(m(b)) }), onlyReader{r})
		})
		return w, nil
	}
	out, err := pipe(func(b []byte) wire.Message { return wire.Message{Out: b} })
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = out, out
	if !merge {
		errs, err := pipe(func(b []byte) wire.Message { return wire.Message{Err: b} })
		if err != nil {
			return nil, err
		}
		cmd.Stderr = errs
	}
	return passing.Wait, cmd.Start()
}

// onlyReader hides what else a file can do, so that io.Copy reads it piece by piece.
type onlyReader struct{ io.Reader }

func exitCode(state *os.ProcessState, err error) (int, error) {
	if state == nil {
		return 0, err
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return state.ExitCode(), nil
}

// killRest ends every process but the first and this one. Kernel threads do not
// mind.
func killRest() {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != 1 && pid != os.Getpid() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
