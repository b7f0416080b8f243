package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// stopsListening sends SIGTERM and waits until the VIP takes no connection.
func (b *baton) stopsListening(w world) {
	b.t.Helper()
	b.signal(syscall.SIGTERM)
	b.waitLog("msg=stopping")
	eventually(b.t, "the VIP refuses", func() error { return w.unreachable(b.t) })
}

// exit tells of the end of the process.
func (b *baton) exit() <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- b.cmd.Wait() }()
	return ended
}

// exits waits for the end of the process.
func (b *baton) exits(within time.Duration) {
	b.t.Helper()
	select {
	case err := <-b.exit():
		if err != nil {
			b.t.Errorf("the process ended with %v", err)
		}
	case <-time.After(within):
		b.t.Fatalf("the process has not ended within %v", within)
	}
}

// gone checks that nothing of the process is left.
func (b *baton) gone(w world) {
	b.t.Helper()
	if left := vipRoutes(b.t, w.Balancer); len(left) > 0 {
		b.t.Errorf("routes are left: %v", left)
	}
	if _, err := os.Lstat(b.socket()); !errors.Is(err, os.ErrNotExist) {
		b.t.Errorf("the socket is left: %v", err)
	}
}

// SIGTERM: no new connections, and a transfer that runs ends well.
func TestStopDrains(t *testing.T) {
	const size = 3 * pieces * pieceSize
	bothFamilies(t, 1, func(t *testing.T, w world) {
		stopped := make(chan struct{})
		w.Backends[0].Serve(8080, func(c net.Conn) {
			stream := testnet.Stream(7, size)
			_, _ = io.CopyN(c, stream, size/2)
			<-stopped
			_, _ = io.Copy(c, stream)
		})
		b := start(t, w.Balancer, w.service(nil))
		c := w.dial(t)
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		stream := io.TeeReader(c, io.Discard)
		if _, err := io.CopyN(io.Discard, stream, size/2); err != nil {
			t.Fatal(err)
		}
		b.stopsListening(w)
		if page, err := b.text("/readyz"); err == nil {
			t.Errorf("it says that it is ready: %s", page)
		}
		close(stopped)
		rest, err := io.Copy(io.Discard, stream)
		if err != nil || rest != size-size/2 {
			t.Errorf("the rest of the transfer: %d bytes of %d, %v", rest, size-size/2, err)
		}
		c.Close()
		b.exits(10 * time.Second)
		b.gone(w)
		b.waitLog("msg=stopped")
	})
}

// SIGTERM: what the kernel has yet to deliver to a slow client is delivered too.
func TestStopDeliversTheRest(t *testing.T) {
	const size = 128 << 10
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.Backends[0].Serve(8080, func(c net.Conn) { _, _ = testnet.SendBulk(c, 5, size) })
		b := start(t, w.Balancer, w.service(nil))
		d := &net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 16<<10) })
		}}
		c, err := w.Client.DialWith(t.Context(), d, "tcp", w.vip)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.(*net.TCPConn).CloseWrite()
		b.endedOf(c.LocalAddr()) // both sides have closed: the rest is in the kernel
		b.stopsListening(w)
		select {
		case <-b.exit():
			t.Fatal("the process has ended with bytes to be delivered")
		case <-time.After(300 * time.Millisecond):
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		got, err := testnet.ReceiveBulk(c)
		if err != nil || got != testnet.StreamSum(5, size) {
			t.Errorf("the client got %v, %v", got, err)
		}
		b.exits(10 * time.Second)
		b.gone(w)
	})
}

// SIGTERM: what is left after the deadline is named in the log and reset.
func TestStopDeadline(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil), "--exit-timeout", "1s", "--access-log")
		c, _ := w.named(t)
		began := time.Now()
		b.stopsListening(w)
		c.wasReset(t)
		if d := time.Since(began); d < time.Second {
			t.Errorf("the flow had only %v", d)
		}
		b.exits(10 * time.Second)
		if !lineWith(b.log.String(), "msg=left", "svc=web", "client="+c.LocalAddr().String(), "backend="+w.backend(0).String(), "state=established") {
			t.Errorf("the log does not name the flow:\n%s", b.log)
		}
		if !lineWith(b.log.String(), "drain-timeout", c.LocalAddr().String()) {
			t.Errorf("the access log has no line of the flow:\n%s", b.log)
		}
		b.gone(w)
	})
}

func lineWith(text string, parts ...string) bool {
	for line := range strings.Lines(text) {
		if hasAll(line, parts) {
			return true
		}
	}
	return false
}

// A second signal does not wait, nor does --flows-on-exit reset.
func TestStopNow(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		for _, reset := range []bool{false, true} {
			var flags []string
			if reset {
				flags = []string{"--flows-on-exit", "reset"}
			}
			b := start(t, w.Balancer, w.service(nil), flags...)
			c, _ := w.named(t)
			b.signal(syscall.SIGTERM)
			if !reset {
				b.waitLog("msg=stopping")
				c.works(t)
				b.signal(syscall.SIGTERM)
			}
			c.wasReset(t)
			b.exits(10 * time.Second)
			b.gone(w)
		}
	})
}

// A signal while it starts stops it too.
func TestStopWhileStarting(t *testing.T) {
	w := world{Star: testnet.NewStar(t, 1)}
	b := launch(t, w.Balancer, "services: []\n")
	eventually(t, "it has begun", func() error { _, err := os.Lstat(b.socket()); return err })
	b.signal(syscall.SIGTERM)
	b.exits(10 * time.Second)
	b.gone(w)
}

// kill -9 leaves the routes; the next start adopts them, serves, removes those
// that the file no longer wants, and its stop leaves none.
func TestKilledAndAdopted(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		other := w
		other.vip = w.otherVIP()
		two := strings.Replace(w.service(nil), "frontends: [", fmt.Sprintf("frontends: [%q, ", "tcp://"+other.vip.String()), 1)
		first := start(t, w.Balancer, two)
		c, _ := w.named(t)
		other.who(t)
		_ = first.stop(syscall.SIGKILL)
		if left := vipRoutes(t, w.Balancer); len(left) != 2 {
			t.Fatalf("routes after the kill: %v, want both", left)
		}
		c.wasReset(t)
		if err := w.refused(t, w.Client); err != nil {
			t.Errorf("between the two: %v", err)
		}
		second := launchIn(t, w.Balancer, first.dir, w.service(nil))
		second.waitServing()
		w.who(t)
		eventually(t, "the VIP that is no longer wanted has no route", func() error {
			if left := vipRoutes(t, w.Balancer); len(left) != 1 || left[0] != w.vip.Addr().String() {
				return fmt.Errorf("routes: %v", left)
			}
			return nil
		})
		second.signal(syscall.SIGTERM)
		second.exits(10 * time.Second)
		second.gone(w)
	})
}

// `baton cleanup` after kill -9 leaves nothing.
func TestKilledAndCleanedUp(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		before := sysctls(t, w.Balancer)
		b := start(t, w.Balancer, w.service(nil))
		w.who(t)
		cleanup := func() (string, error) {
			out, err := w.Balancer.Command(context.Background(), batonPath, "cleanup", "--state-dir", b.dir).CombinedOutput()
			return string(out), err
		}
		if out, err := cleanup(); err == nil {
			t.Errorf("cleanup beside a running instance: %s", out)
		}
		w.who(t)
		_ = b.stop(syscall.SIGKILL)
		if out, err := cleanup(); err != nil {
			t.Errorf("cleanup: %v: %s", err, out)
		}
		if left := vipRoutes(t, w.Balancer); len(left) > 0 {
			t.Errorf("routes are left: %v", left)
		}
		if after := sysctls(t, w.Balancer); after != before {
			t.Errorf("sysctls were %s and are %s", before, after)
		}
		list, err := os.ReadDir(b.dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			if name := f.Name(); name != "baton.yaml" && name != "admin.sock" {
				t.Errorf("file %s is left", name)
			}
		}
		if out, err := cleanup(); err != nil {
			t.Errorf("a second cleanup: %v: %s", err, out)
		}
	})
}

// sysctls are those that the command may change.
func sysctls(t *testing.T, h *testnet.Host) string {
	t.Helper()
	var all []string
	h.Do(func() {
		for _, name := range []string{"arp_ignore", "arp_announce"} {
			text, err := os.ReadFile("/proc/sys/net/ipv4/conf/all/" + name)
			if err != nil {
				t.Error(err)
			}
			all = append(all, name+"="+strings.TrimSpace(string(text)))
		}
	})
	return strings.Join(all, " ")
}
