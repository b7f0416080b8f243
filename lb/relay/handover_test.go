package relay

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// passing takes what one relay hands over as another process would: as JSON, with
// descriptors of its own.
type passing struct {
	t   testing.TB
	got []Inherited
}

func (p *passing) take(what []Handed, fds []int) error {
	p.t.Helper()
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	var read []Handed
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	for i, fd := range fds {
		c, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		p.got = append(p.got, Inherited{read[i], c})
	}
	return nil
}

// begun hands the sockets of a relay over to another one, which holds still.
func begun(t testing.TB, from *Relay) (*Handover, *Inheritance) {
	t.Helper()
	h, err := from.Handover()
	if err != nil {
		t.Fatal(err)
	}
	p := &passing{t: t}
	if err := h.Sockets(p.take); err != nil {
		t.Fatal(err)
	}
	return h, &Inheritance{Loops: h.Loops(), VIPs: h.VIPs(), Sockets: p.got}
}

// sessions takes those of a relay.
func sessions(t testing.TB, h *Handover) []Inherited {
	t.Helper()
	if err := h.PauseUDP(); err != nil {
		t.Fatal(err)
	}
	p := &passing{t: t}
	if err := h.Sessions(p.take); err != nil {
		t.Fatal(err)
	}
	return p.got
}

// connects dials without pause until it is stopped, and counts what fails.
type connects struct {
	stop    chan struct{}
	running sync.WaitGroup
	mu      sync.Mutex
	n       int
	failed  []error
}

func startConnects(workers int, to string) *connects {
	c := &connects{stop: make(chan struct{})}
	for range workers {
		c.running.Go(func() {
			for {
				select {
				case <-c.stop:
					return
				default:
				}
				err := connectOnce(to)
				c.mu.Lock()
				if c.n++; err != nil {
					c.failed = append(c.failed, err)
				}
				c.mu.Unlock()
			}
		})
	}
	return c
}

func connectOnce(to string) error {
	conn, err := net.DialTimeout("tcp", to, patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	return testnet.Ask(conn, "x")
}

func (c *connects) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func (c *connects) end(t testing.TB) {
	t.Helper()
	close(c.stop)
	c.running.Wait()
	if len(c.failed) > 0 {
		t.Errorf("%d of %d connections failed, the first: %v", len(c.failed), c.n, c.failed[0])
	}
}

func (c *connects) more(t testing.TB, n int) {
	t.Helper()
	from := c.count()
	testnet.Eventually(t, patience, "connections go on", func() error {
		if got := c.count() - from; got < n {
			return fmt.Errorf("%d of %d", got, n)
		}
		return nil
	})
}

func TestHandoverLosesNoConnection(t *testing.T) {
	to, _ := backend(t, testnet.Echo)
	svc := service("web", vip, to)
	for round, resume := range []bool{true, false} {
		old := newWorld(t, Options{Loops: 2})
		old.serve(svc)
		kept := dial(t, vip)
		load := startConnects(4, vip.String())
		load.more(t, 50)
		h, in := begun(t, old.relay)
		next := newWorld(t, Options{Loops: 2, Inherit: in})
		next.serve(svc)
		load.more(t, 50)
		if n := next.relay.Flows(); n != 0 {
			t.Errorf("a relay that holds still has %d flows", n)
		}
		if resume {
			next.close()
			h.Resume()
			load.more(t, 50)
		} else {
			h.Release()
			if err := next.relay.Begin(nil); err != nil {
				t.Error(err)
			}
			load.more(t, 200)
			testnet.Eventually(t, patience, "the old relay has only what it had", func() error {
				if n := old.relay.Flows(); n != 1 {
					return fmt.Errorf("%d flows", n)
				}
				return nil
			})
		}
		load.end(t)
		if err := testnet.Ask(kept, "still there"); err != nil {
			t.Errorf("round %d: the open connection: %v", round, err)
		}
		kept.Close()
		if !resume {
			old.close()
			if err := connectOnce(vip.String()); err != nil {
				t.Errorf("after the old relay has gone: %v", err)
			}
			next.close()
		}
		old.close()
	}
}

func TestHandoverOfUDP(t *testing.T) {
	dir := t.TempDir()
	old := newWorld(t, Options{Loops: 2, StateDir: dir})
	b := newUDPBackend(t, "b")
	svc := udpOf(service("dns", udpVIP, b.addr))
	old.serve(svc)
	var clients []*net.UDPConn
	for range 40 {
		c := udpClientTo(t, udpVIP)
		ask(t, c, b)
		clients = append(clients, c)
	}
	ids := make(map[flow.ID]bool)
	for _, rec := range old.registry.Records() {
		ids[rec.ID()] = true
	}
	ports := b.senders()

	h, in := begun(t, old.relay)
	next := newWorld(t, Options{Loops: 1, StateDir: dir, Inherit: in})
	next.serve(svc)
	ask(t, clients[0], b) // it is the old one's yet
	all := sessions(t, h)
	for _, c := range clients {
		send(t, c, "x") // both stand still
	}
	for _, p := range ports {
		_, _ = b.conn.WriteToUDPAddrPort([]byte("unasked"), p)
	}
	h.Release()
	if err := next.relay.Begin(all); err != nil {
		t.Error(err)
	}
	for i, c := range clients {
		for range 2 {
			got, err := take(c, patience)
			if err != nil || got != "b x" && got != "unasked" {
				t.Errorf("client %d got %q, %v", i, got, err)
			}
		}
	}
	if now := b.senders(); len(now) != len(ports) {
		t.Errorf("the backend saw %d addresses before, %d after", len(ports), len(now))
	}
	for _, rec := range next.registry.Records() {
		delete(ids, rec.ID())
	}
	if len(ids) > 0 {
		t.Errorf("%d sessions have another id than before", len(ids))
	}
	old.close()
	ask(t, clients[1], b)
	for _, c := range clients {
		c.Close()
	}
	b.close()
	next.close()
	old.leaks()
}

func TestHandoverResumesUDP(t *testing.T) {
	dir := t.TempDir()
	b := newUDPBackend(t, "b")
	svc := udpOf(service("dns", udpVIP, b.addr))
	old := newWorld(t, Options{Loops: 2, StateDir: dir})
	old.serve(svc)
	c := udpClientTo(t, udpVIP)
	ask(t, c, b)
	h, in := begun(t, old.relay)
	next := newWorld(t, Options{StateDir: dir, Inherit: in})
	next.serve(svc)
	for _, s := range sessions(t, h) {
		unix.Close(s.FD)
	}
	send(t, c, "x")
	next.leaks()
	h.Resume()
	if got, err := take(c, patience); err != nil || got != "b x" {
		t.Errorf("what came meanwhile: %q, %v", got, err)
	}
	ask(t, c, b)
	if n := len(b.senders()); n != 1 {
		t.Errorf("the backend saw %d addresses", n)
	}
}

// A frontend that the next configuration does not have, and one that the last one
// did not have.
func TestHandoverToAnotherConfiguration(t *testing.T) {
	to, _ := backend(t, testnet.Echo)
	gone, kept, fresh := lb.FrontendKey{}, lb.FrontendKey{}, lb.FrontendKey{}
	svc := service("web", vip, to)
	for i, k := range []*lb.FrontendKey{&gone, &kept, &fresh} {
		*k = svc.Frontends[0].FrontendKey
		k.Address = netip.AddrPortFrom(vip.Addr(), uint16(81+i))
	}
	with := func(keys ...lb.FrontendKey) lb.Service {
		s := svc
		s.Frontends = nil
		for _, k := range keys {
			s.Frontends = append(s.Frontends, lb.Frontend{FrontendKey: k})
		}
		return s
	}
	old := newWorld(t, Options{})
	old.serve(with(gone, kept))
	c := dial(t, gone.Address)
	h, in := begun(t, old.relay)
	next := newWorld(t, Options{Inherit: in})
	next.serve(with(kept, fresh))
	h.Release()
	if err := next.relay.Begin(nil); err != nil {
		t.Error(err)
	}
	for _, k := range []lb.FrontendKey{kept, fresh} {
		if err := connectOnce(k.Address.String()); err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
	if err := connectOnce(gone.Address.String()); err == nil {
		t.Errorf("%s still answers", gone)
	}
	if err := testnet.Ask(c, "x"); err != nil {
		t.Errorf("the open connection: %v", err)
	}
	_ = c.CloseWrite()
	_, _ = io.Copy(io.Discard, c)
}

func TestHandoverIsRefused(t *testing.T) {
	w := newWorld(t, Options{})
	if err := w.relay.Begin(nil); err == nil {
		t.Error("Begin without an inheritance")
	}
	held := newWorld(t, Options{Inherit: &Inheritance{}})
	if _, err := held.relay.Handover(); err == nil {
		t.Error("a relay that has not begun hands over")
	}
	w.close()
	if _, err := w.relay.Handover(); err == nil {
		t.Error("a closed relay hands over")
	}
}

// Descriptors that have come over are not counted twice: a relay whose listeners take
// most of what there is can be taken over.
func TestHandoverOfManyListeners(t *testing.T) {
	const frontends = 300
	to, _ := backend(t, testnet.Echo)
	svc := service("web", vip, to)
	svc.Frontends = nil
	for i := range frontends {
		key := lb.FrontendKey{Proto: flow.TCP, Address: netip.AddrPortFrom(vip.Addr(), uint16(2000+i))}
		svc.Frontends = append(svc.Frontends, lb.Frontend{FrontendKey: key})
	}
	open := descriptors(t)
	limit := open + frontends*5/4 + 120
	old := newWorld(t, Options{Loops: 1, Descriptors: limit})
	old.serve(svc)
	h, in := begun(t, old.relay)
	if len(in.Sockets) != frontends {
		t.Errorf("%d sockets have come over", len(in.Sockets))
	}
	// Here both are one process; the next one has the same limit for itself alone.
	next := newWorld(t, Options{Loops: 1, Descriptors: limit + descriptors(t) - open - frontends, Inherit: in})
	next.serve(svc)
	h.Release()
	if err := next.relay.Begin(nil); err != nil {
		t.Error(err)
	}
	for _, fe := range []int{0, frontends - 1} {
		if err := connectOnce(svc.Frontends[fe].Address.String()); err != nil {
			t.Error(err)
		}
	}
}
