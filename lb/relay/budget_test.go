package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// Without descriptors to spare clients wait, at every listener, and are served
// as others leave.
func TestDescriptorsRunOut(t *testing.T) {
	w := newWorld(t, Options{Loops: 2})
	w.relay.budget.limit = 40
	addr, _ := backend(t, testnet.Echo)
	second := netip.MustParseAddrPort("127.0.1.2:80")
	w.serve(service("web", vip, addr), service("other", second, addr))
	fit := w.relay.budget.room() / perFlow
	var conns []*net.TCPConn
	for i := range 3 * fit {
		conns = append(conns, dial(t, []netip.AddrPort{vip, second}[i%2]))
	}
	testnet.Eventually(t, patience, "as many flows as fit are open", func() error {
		if n := w.registry.Len(); n < fit-len(w.relay.workers) {
			return fmt.Errorf("%d of %d", n, fit)
		}
		return nil
	})
	if n := w.registry.DropCounts()[flow.DropNoDescriptors]; n == 0 {
		t.Error("no drop was counted")
	}
	last := conns[len(conns)-fit/2:]
	for _, c := range conns[:len(conns)-len(last)] {
		c.Close()
	}
	for _, c := range last {
		if err := testnet.Ask(c, "at last"); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	testnet.Eventually(t, patience, "nobody sleeps", func() error {
		if w.registry.Len() > 0 {
			return errors.New("flows are live")
		}
		return nil
	})
	c := dial(t, vip)
	if err := testnet.Ask(c, "room again"); err != nil {
		t.Error(err)
	}
}

// When accept(2) itself fails for want of descriptors the loops pause instead of
// spinning, and go on by themselves.
func TestTooManyOpenFiles(t *testing.T) {
	w := newWorld(t, Options{Loops: 1, Descriptors: 10_000})
	addr, _ := backend(t, testnet.Echo)
	w.serve(service("web", vip, addr))
	if err := testnet.Ask(dial(t, vip), "before"); err != nil {
		t.Fatal(err)
	}
	release := w.hold()
	defer release()
	c := dial(t, vip)
	free := useAllDescriptors(t)
	release()
	testnet.Eventually(t, patience, "the loop pauses", func() error {
		var paused bool
		_ = w.relay.workers[0].loop.Call(func() { paused = w.relay.workers[0].paused })
		if !paused {
			return errors.New("it does not")
		}
		return nil
	})
	free()
	if err := testnet.Ask(c, "after"); err != nil {
		t.Error(err)
	}
	if n := w.registry.DropCounts()[flow.DropNoDescriptors]; n == 0 || n > 100 {
		t.Errorf("%d drops were counted", n)
	}
}

// useAllDescriptors opens as many as the process may have, of which it lowers
// the limit for the time.
func useAllDescriptors(t *testing.T) (free func()) {
	t.Helper()
	needsNamespace(t) // a process of its own
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	low := before
	low.Cur = uint64(descriptors(t) + 50)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	var fds []int
	for {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break
		}
		fds = append(fds, fd)
	}
	free = sync.OnceFunc(func() {
		closeAll(fds...)
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
	})
	t.Cleanup(free)
	return free
}

// Listeners may not take what connections need.
func TestListenersLeaveRoom(t *testing.T) {
	w := newWorld(t, Options{})
	w.relay.budget.limit = 40
	addr, _ := backend(t, testnet.Echo)
	s := service("web", vip, addr)
	for i := range 60 {
		s.Frontends = append(s.Frontends, lb.Frontend{FrontendKey: lb.FrontendKey{
			Proto: flow.TCP, Address: netip.AddrPortFrom(vip.Addr(), uint16(1000+i)),
		}})
	}
	if err := w.source.Replace([]lb.Service{s}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.store.Programmed(ctx, w.store.Snapshot().Revision); err != nil {
		t.Fatal(err)
	}
	failures := w.store.Failures()
	if len(failures) == 0 || len(failures) > 50 {
		t.Fatalf("%d of 61 frontends fail", len(failures))
	}
	for _, f := range failures {
		if !errors.Is(f.Err, errNoDescriptors) {
			t.Errorf("%v", f)
		}
	}
	if w.relay.budget.room() < perFlow {
		t.Error("there is no room for a connection")
	}
}

// The budget gives out no more than it has, to any number of takers at once.
func TestBudget(t *testing.T) {
	b := &budget{limit: 100}
	var takers sync.WaitGroup
	got := make([]int, 8)
	for i := range got {
		takers.Go(func() {
			for range 1000 {
				if b.take(2) {
					got[i]++
				}
			}
		})
	}
	takers.Wait()
	total := 0
	for _, n := range got {
		total += n
	}
	if total != 50 || b.room() != 0 {
		t.Errorf("%d were taken, room for %d", total, b.room())
	}
	b.hold(5)
	if b.room() != 0 || b.take(1) {
		t.Error("there is room beyond the limit")
	}
	b.put(10)
	if b.room() != 5 || !b.take(5) || b.take(1) {
		t.Errorf("room for %d", b.room())
	}
}

// How a limit is divided; too low a one is an error that says what to do.
func TestNewBudget(t *testing.T) {
	open := descriptors(t)
	for limit, ok := range map[int]bool{open: false, open + 10: false, open + 200: true, 20_000: true, 1 << 20: true, 0: true} {
		b, pipes, err := newBudget(limit, 0)
		if (err == nil) != ok {
			t.Errorf("limit %d: %v", limit, err)
		}
		if err != nil || limit == 0 {
			continue
		}
		if sum := int(b.limit) + 2*pipes + open; pipes < 1 || pipes > 1024 || sum > limit || b.limit < int64(limit-open)/2 {
			t.Errorf("limit %d: %d for connections, %d pipes", limit, b.limit, pipes)
		}
	}
}
