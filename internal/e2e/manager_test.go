package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ready runs `baton ready` beside the command.
func (b *baton) ready(w world, flags ...string) error {
	b.t.Helper()
	args := append([]string{"ready", "--socket", b.socket()}, flags...)
	if out, err := w.Balancer.Command(b.t.Context(), batonPath, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// Whoever starts the next process beside the one that runs, and stops that one when the
// next is ready, cuts no flow: a Kubernetes DaemonSet that surges does just that.
func TestUpgradeThenStopOfTheOld(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.offload = inUserspace
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil))
		if err := b.ready(w); err != nil {
			t.Error(err)
		}
		c, _ := w.named(t)
		next := b.upgrade(w, w.service(nil))
		if err := next.ready(w, "--pid", strconv.Itoa(next.cmd.Process.Pid)); err != nil {
			t.Error(err)
		}
		if err := next.ready(w, "--pid", strconv.Itoa(b.cmd.Process.Pid)); err == nil {
			t.Error("the old process is ready")
		}
		b.signal(syscall.SIGTERM)
		b.waitLog("another signal ends them")
		c.works(t)
		b.signal(syscall.SIGTERM)
		c.wasReset(t)
		b.exits(10 * time.Second)
		w.who(t)
	})
}

// A service manager is told of the start, of reloads, also refused ones, of life, and of
// the stop.
func TestServiceManager(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		dir := t.TempDir()
		told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer told.Close()
		hears := func(what string) {
			t.Helper()
			buf := make([]byte, 4096)
			_ = told.SetReadDeadline(time.Now().Add(30 * time.Second))
			for {
				n, err := told.Read(buf)
				if err != nil {
					t.Fatalf("wait for %q: %v", what, err)
				}
				if strings.HasPrefix(string(buf[:n]), what) {
					return
				}
			}
		}
		b := prepare(t, w.Balancer, dir, w.service(nil))
		b.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+told.LocalAddr().String(), "WATCHDOG_USEC=100000")
		b.run()
		hears("READY=1")
		w.who(t) // ready is when it serves
		hears("WATCHDOG=1")
		b.signal(syscall.SIGHUP)
		hears("RELOADING=1\nMONOTONIC_USEC=")
		hears("READY=1")
		b.configure("nonsense")
		b.signal(syscall.SIGHUP)
		hears("RELOADING=1\nMONOTONIC_USEC=")
		hears("READY=1")
		hears("WATCHDOG=1")
		b.signal(syscall.SIGTERM)
		hears("STOPPING=1")
		if err := b.cmd.Wait(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
	})
}

// One that is not there keeps nobody from being served.
func TestServiceManagerIsGone(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := prepare(t, w.Balancer, t.TempDir(), w.service(nil))
		b.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+filepath.Join(b.dir, "none"))
		b.run()
		b.waitServing()
		w.who(t)
		b.waitLog("the service manager hears nothing")
	})
}
