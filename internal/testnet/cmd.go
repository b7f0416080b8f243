package testnet

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Cmd is a program that runs inside a host. It sees the machine's file systems
// as they are: unlike "ip netns exec" nothing is mounted over /sys, so that
// cgroup2 and bpffs stay where they were.
//
// It is killed when its context is done, when the test ends, and when the test's
// process dies. For the last of these the kernel watches the thread that started
// it (prctl(2), PR_SET_PDEATHSIG), which is kept for as long as the program runs.
type Cmd struct {
	*exec.Cmd
	host *Host

	wait  func() error  // waits once, for every caller
	ended chan struct{} // closed when it has been waited for

	// mu guards what follows.
	mu      sync.Mutex
	started bool
}

// Command prepares a program to run inside the host.
func (h *Host) Command(ctx context.Context, name string, args ...string) *Cmd {
	c := &Cmd{Cmd: exec.CommandContext(ctx, name, args...), host: h, ended: make(chan struct{})}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.wait = sync.OnceValue(func() error {
		defer close(c.ended)
		return c.Cmd.Wait()
	})
	h.t.Cleanup(c.kill)
	return c
}

// TestProcess prepares the test program itself to run inside the host, reduced to
// the named test and told so by the variables ("KEY=value") in its environment. It
// is for code that makes sockets on goroutines of its own, where [Host.Do] does
// not reach: the named test runs that code, and returns at once without them.
func (h *Host) TestProcess(ctx context.Context, test string, env ...string) *Cmd {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatalf("host %s: find the test program: %v", h.name, err)
	}
	c := h.Command(ctx, self, "-test.run=^"+test+"$", "-test.count=1")
	c.Env = append(os.Environ(), env...)
	return c
}

// Start starts the program and returns.
func (c *Cmd) Start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var inner error
		err := inNamespace(c.host.ns, func() { inner = c.Cmd.Start() })
		if err == nil {
			err = inner
		}
		started <- err
		if err == nil {
			<-c.ended
		}
	}()
	err := <-started
	if err == nil {
		c.mu.Lock()
		c.started = true
		c.mu.Unlock()
	}
	return err
}

// Wait waits for the program to end. It may be called more than once, and from
// several goroutines; each gets the same answer.
func (c *Cmd) Wait() error { return c.wait() }

// Run starts the program and waits for it to end.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the program and returns its standard output. Standard error, unless
// redirected, goes into the exec.ExitError of a program that fails.
func (c *Cmd) Output() ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("collect output: Stdout is set already")
	}
	var out, errs buffer
	c.Stdout = &out
	quiet := c.Stderr == nil
	if quiet {
		c.Stderr = &errs
	}
	err := c.Run()
	var exit *exec.ExitError
	if quiet && errors.As(err, &exit) {
		exit.Stderr = errs.Bytes()
	}
	return out.Bytes(), err
}

// CombinedOutput runs the program and returns both its outputs.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	if c.Stdout != nil || c.Stderr != nil {
		return nil, errors.New("collect output: Stdout or Stderr is set already")
	}
	var out buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}

func (c *Cmd) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		return
	}
	_ = c.Process.Kill()
	_ = c.wait() // its fate was the test's to judge
}
