package relay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/handoff"
)

// allowing is a Transparency that gives everybody the same answer. On the loopback
// device answers come back without any help.
type allowing struct {
	why         flow.NotTransparent
	onlySockets bool
}

func (a allowing) Ask(_, _ netip.Addr) (flow.NotTransparent, bool) { return a.why, a.onlySockets }

func asking(s lb.Service) lb.Service {
	s.ClientAddress = lb.Transparent
	return s
}

// tell says who the client is.
func tell(c net.Conn) {
	_, _ = c.Write([]byte(c.RemoteAddr().String() + "\n"))
	testnet.Hold(c)
}

// shared lets others bind to the same port: here the client's host is the relay's.
func shared(_, _ string, c syscall.RawConn) (err error) {
	outer := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	return errors.Join(outer, err)
}

// sharedPort connects from a port that the relay may use too.
func sharedPort(t *testing.T, network string, to netip.AddrPort) net.Conn {
	t.Helper()
	d := net.Dialer{Timeout: patience, Control: shared}
	c, err := d.Dial(network, to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

func addrOf(c interface{ LocalAddr() net.Addr }) netip.AddrPort {
	return netip.MustParseAddrPort(c.LocalAddr().String())
}

// A backend sees what the record says that it sees.
func TestShownToBackend(t *testing.T) {
	needsNamespace(t)
	for _, tt := range []struct {
		name string
		it   Transparency
		as   flow.ClientAddress
		why  flow.NotTransparent
	}{
		{"allowed", allowing{}, flow.ClientTransparent, ""},
		{"not allowed", allowing{why: flow.NotTransparentOtherWay}, flow.ClientMasked, flow.NotTransparentOtherWay},
		{"nobody knows", nil, flow.ClientMasked, flow.NotTransparentUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, Options{Loops: 1, Transparency: tt.it})
			at, _ := backend(t, tell)
			u := newUDPBackend(t, "one")
			w.serve(asking(service("web", vip, at)), asking(udpOf(service("dns", udpVIP, u.addr))))

			c := sharedPort(t, "tcp", vip)
			saw, err := testnet.ReadName(c)
			me := addrOf(c)
			if err != nil || (saw == me.String()) != (tt.as == flow.ClientTransparent) {
				t.Errorf("TCP: the backend saw %s, %v, of %s", saw, err, me)
			}
			d := sharedPort(t, "udp", udpVIP)
			if _, err := d.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			wantCount(t, 1, u)
			if got := u.senders()[0]; (got == addrOf(d)) != (tt.as == flow.ClientTransparent) {
				t.Errorf("UDP: the backend saw %s, of %s", got, addrOf(d))
			}
			for _, rec := range w.registry.Records() {
				if v := rec.View(); v.ClientAddress != tt.as || v.NotTransparent != tt.why {
					t.Errorf("%s: the record says %s %q, want %s %q", v.Protocol, v.ClientAddress, v.NotTransparent, tt.as, tt.why)
				}
			}
			c.Close()
		})
	}
}

// Flows that do not ask say nothing.
func TestShownToNobody(t *testing.T) {
	w := newWorld(t, Options{Loops: 1, Transparency: allowing{}})
	at, _ := backend(t, testnet.Echo)
	w.serve(service("web", vip, at))
	c := sharedPort(t, "tcp", vip)
	if err := testnet.Ask(c, "there?"); err != nil {
		t.Fatal(err)
	}
	for _, rec := range w.registry.Records() {
		if v := rec.View(); v.ClientAddress != "" || v.NotTransparent != "" {
			t.Errorf("the record says %s %q", v.ClientAddress, v.NotTransparent)
		}
	}
	c.Close()
}

// A frontend may ask where its service does not.
func TestFrontendAsks(t *testing.T) {
	needsNamespace(t)
	w := newWorld(t, Options{Loops: 1, Transparency: allowing{}})
	at, _ := backend(t, tell)
	s := service("web", vip, at)
	s.Frontends[0].ClientAddress = lb.Transparent
	w.serve(s)
	c := sharedPort(t, "tcp", vip)
	if saw, err := testnet.ReadName(c); err != nil || saw != addrOf(c).String() {
		t.Errorf("the backend saw %s, %v", saw, err)
	}
	c.Close()
}

// Whose answers come to sockets only is not offered to anybody.
func TestStaysForItsSocket(t *testing.T) {
	needsNamespace(t)
	o := &refusing{}
	w := newWorld(t, Options{Loops: 1, Transparency: allowing{onlySockets: true}, Offloader: o})
	at, _ := backend(t, testnet.Echo)
	u := newUDPBackend(t, "one")
	s := asking(service("web", vip, at))
	s.Offload.Mode = lb.OffloadAlways
	dns := asking(udpOf(service("dns", udpVIP, u.addr)))
	dns.Offload.Mode = lb.OffloadAlways
	w.serve(s, dns)
	c := sharedPort(t, "tcp", vip)
	if err := testnet.Ask(c, "there?"); err != nil {
		t.Fatal(err)
	}
	d := sharedPort(t, "udp", udpVIP)
	for i := range 3 {
		if _, err := d.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		wantCount(t, i+1, u)
	}
	for _, rec := range w.registry.Records() {
		if v := rec.View(); v.NotOffloaded != flow.NotOffloadedUnseen {
			t.Errorf("%s: not offloaded: %q", v.Protocol, v.NotOffloaded)
		}
	}
	if o.asked {
		t.Error("the offloader was asked")
	}
	c.Close()
}

type refusing struct{ asked bool }

func (r *refusing) Prepare(handoff.Request) (handoff.Lease, flow.NotOffloaded) {
	r.asked = true
	return nil, flow.NotOffloadedFailed
}

func (r *refusing) Carry(handoff.Session) (handoff.Carrier, flow.NotOffloaded) {
	r.asked = true
	return nil, flow.NotOffloadedFailed
}

// A session keeps the client's port over a move to another backend, and gives it back
// at its end.
func TestShownWhileMoving(t *testing.T) {
	needsNamespace(t)
	w := newWorld(t, Options{Loops: 1, Transparency: allowing{}})
	one, two := newUDPBackend(t, "one"), udpBackendAt(t, "two", netip.MustParseAddrPort("127.0.2.2:0"))
	w.serve(asking(udpOf(service("dns", udpVIP, one.addr))))
	d := sharedPort(t, "udp", udpVIP)
	for _, b := range []*udpBackend{one, two, one} {
		w.serve(asking(udpOf(service("dns", udpVIP, b.addr))))
		before := b.count()
		b.forget()
		if _, err := d.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		wantCount(t, before+1, b)
		if got := b.senders(); len(got) != 1 || got[0] != addrOf(d) {
			t.Errorf("%s saw %s, want %s", b.name, got, addrOf(d))
		}
	}
	for _, rec := range w.registry.Records() {
		rec.End(flow.ByBaton, flow.ReasonAdminReset)
	}
	testnet.Eventually(t, patience, "every tuple is given back", func() error {
		w.relay.udpTuples.mu.Lock()
		defer w.relay.udpTuples.mu.Unlock()
		if n := len(w.relay.udpTuples.taken); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
}

// Two sessions of one client port to the same backend are told apart by another port.
func TestShownTwice(t *testing.T) {
	needsNamespace(t)
	w := newWorld(t, Options{Loops: 1, Transparency: allowing{}})
	u := newUDPBackend(t, "one")
	other := netip.MustParseAddrPort("127.0.1.2:53")
	w.serve(asking(udpOf(service("a", udpVIP, u.addr))), asking(udpOf(service("b", other, u.addr))))
	lc := net.ListenConfig{Control: shared}
	pc, err := lc.ListenPacket(t.Context(), "udp", "127.0.0.9:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	for i, to := range []netip.AddrPort{udpVIP, other} {
		if _, err := pc.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(to)); err != nil {
			t.Fatal(err)
		}
		wantCount(t, i+1, u)
	}
	me := addrOf(pc)
	if got := u.senders(); len(got) != 2 || got[0].Addr() != me.Addr() || got[1].Addr() != me.Addr() {
		t.Errorf("the backend saw %s, want two ports of %s", got, me.Addr())
	}
	said := make(map[flow.ClientAddress]int)
	for _, rec := range w.registry.Records() {
		said[rec.View().ClientAddress]++
	}
	if said[flow.ClientTransparent] != 1 || said[flow.ClientPortChanged] != 1 {
		t.Errorf("the records say %v", said)
	}
}
