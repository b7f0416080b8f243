package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// What is in the demonstration's directory, where every command runs.
const (
	demoFile   = "baton.yaml"
	demoSocket = "admin.sock"
)

// makeDirectory makes the directory for the file, the socket and the log. In
// bin there is this very program as baton, for the commands to find.
func (d *demo) makeDirectory() {
	dir, err := os.MkdirTemp("", "baton-demo-")
	d.must("make a directory", err)
	d.Cleanup(func() {
		// An instance that was killed leaves its bpffs; the hosts of its flows are gone.
		_ = unix.Unmount(filepath.Join(dir, "bpf"), unix.MNT_DETACH)
		_ = os.RemoveAll(dir)
	})
	d.dir = dir
	self, err := os.Executable()
	d.must("find this program", err)
	d.must("make a directory", os.Mkdir(d.path("bin"), 0o755))
	d.must("link this program", os.Symlink(self, d.path("bin/baton")))
}

func (d *demo) path(name string) string { return filepath.Join(d.dir, name) }

// command prepares a program on the balancer, in a process group of its own: an
// interrupt from the terminal is for the demonstration alone, which ends them.
func (d *demo) command(ctx context.Context, name string, args ...string) *testnet.Cmd {
	c := d.star.Balancer.Command(ctx, name, args...)
	c.Dir = d.dir
	c.Env = append(os.Environ(), "PATH="+d.path("bin")+":"+os.Getenv("PATH"), fmt.Sprintf("COLUMNS=%d", screenWidth))
	c.SysProcAttr.Setpgid = true
	c.Cancel = func() error { return unix.Kill(-c.Process.Pid, unix.SIGKILL) }
	c.WaitDelay = time.Second
	return c
}

// shell shows a line, runs it in a shell on the balancer, and shows what it
// printed. The last command of the line must end with one of the exit codes,
// 0 unless others are named.
func (d *demo) shell(line string, codes ...int) string {
	d.screen.command(line)
	d.breathe()
	out, err := d.command(d.ctx, "sh", "-c", line).CombinedOutput()
	d.screen.output(string(out))
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code, err = exit.ExitCode(), nil
	}
	if len(codes) == 0 {
		codes = []int{0}
	}
	d.must("run "+line, err)
	for _, c := range codes {
		if c == code {
			return string(out)
		}
	}
	d.Fatalf("%s: exit status %d", line, code)
	return ""
}

// rows are the lines of a table under its title.
func rows(table string) []string {
	lines := strings.Split(strings.TrimSuffix(table, "\n"), "\n")
	return lines[1:]
}

// background starts a baton command and shows the line that does so in a shell.
// What it prints (">") or complains about ("2>") goes into a file of the
// directory.
func (d *demo) background(redirect, file string, args ...string) *testnet.Cmd {
	line := "baton " + strings.Join(args, " ")
	d.screen.command(line + " " + redirect + file + " &")
	f, err := os.Create(d.path(file))
	d.must("make "+file, err)
	defer f.Close()
	c := d.command(context.Background(), d.path("bin/baton"), args...)
	if c.Stdout = f; redirect == "2>" {
		c.Stdout, c.Stderr = nil, f
	}
	d.must("run "+line, c.Start())
	return c
}

// end asks a command of the background to end, and waits for it.
func (d *demo) end(c *testnet.Cmd, what string) {
	late := time.AfterFunc(storyDeadline, func() { _ = c.Process.Kill() })
	defer late.Stop()
	stop := context.AfterFunc(d.ctx, func() { _ = c.Process.Kill() })
	defer stop()
	d.must("end "+what, c.Process.Signal(unix.SIGTERM))
	d.must("end "+what, c.Wait())
}

// startBaton runs the balancer and waits until it serves.
func (d *demo) startBaton() {
	d.instance = d.background("2>", "run.log", "run", "--config", demoFile, "--socket", demoSocket, "--state-dir", ".")
	d.Cleanup(d.showLog)
	d.await("baton serves", func() error {
		i, err := d.api.Instance(d.ctx)
		if err == nil && !i.Ready {
			err = errors.New(i.NotReady)
		}
		return err
	})
}

// showLog prints the end of the balancer's log when the story has failed.
func (d *demo) showLog() {
	if !d.failed() || d.ctx.Err() != nil {
		return
	}
	log, _ := os.ReadFile(d.path("run.log"))
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	d.screen.say("\nThe end of run.log:")
	d.screen.output(strings.Join(lines[max(0, len(lines)-10):], "\n"))
}
