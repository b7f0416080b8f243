package bpf

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// narrow makes the balancer's way to a host carry no more than that.
func (r *road) narrow(t testing.TB, to testnet.Port, dev string, mtu int) {
	t.Helper()
	l, err := r.Balancer.Netlink().LinkByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []netip.Addr{to.IP4, to.IP6} {
		dst := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
		route := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, MTU: mtu, MTULock: true, Scope: netlink.SCOPE_LINK}
		if err := r.Balancer.Netlink().RouteReplace(route); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNarrowWay: senders are told what fits, and go on with that. With and without checksums that a device fills in.
func TestNarrowWay(t *testing.T) {
	for _, offloads := range []bool{true, false} {
		t.Run(map[bool]string{true: "offloads", false: "no offloads"}[offloads], func(t *testing.T) {
			r := newRoad(t, FlowsOptions{Capacity: 4})
			if !offloads {
				for _, l := range []testnet.Link{r.ClientLink, r.BackendLinks[0]} {
					l.A.NoOffloads()
					l.B.NoOffloads()
				}
			}
			r.narrow(t, r.BackendLinks[0].B, r.BackendLinks[0].A.Dev, 1400)
			r.narrow(t, r.ClientLink.B, r.ClientLink.A.Dev, 1300)
			eachFamily(t, func(t *testing.T, ipv6 bool) {
				s := r.spec(flow.TCP, ipv6)
				w := r.add(t, s, offsets["far apart"])
				client, backend := r.connect(t, s)
				before := r.counts(t)[FlowsTooBig]
				exchange(t, client, backend, 1<<20)
				if told := r.counts(t)[FlowsTooBig] - before; told < 2 || told > 500 {
					t.Errorf("%d packets were too big", told)
				}
				if !w.State().Over() {
					t.Errorf("%+v", w.State())
				}
			})
		})
	}
}

// TestNarrowWayForDatagrams: a sender that asks for it hears what fits; others' datagrams go to the socket.
func TestNarrowWayForDatagrams(t *testing.T) {
	r := newRoad(t, FlowsOptions{Capacity: 4})
	r.narrow(t, r.BackendLinks[0].B, r.BackendLinks[0].A.Dev, 1300)
	eachFamily(t, func(t *testing.T, ipv6 bool) {
		s := r.spec(flow.UDP, ipv6)
		w := r.add(t, s, offset{})
		conn := r.dial(t, s)
		defer conn.Close()
		testnet.Eventually(t, 5*time.Second, "the client hears that a datagram is too big", func() error {
			if _, err := conn.Write(make([]byte, 1400)); !errors.Is(err, unix.EMSGSIZE) {
				return errors.New("not yet")
			}
			return nil
		})
		if _, err := conn.Write(make([]byte, 1200)); err != nil {
			t.Error(err)
		}
		testnet.Eventually(t, 5*time.Second, "one that fits goes on", func() error {
			if w.State().Directions[ToBackend].Packets == 0 {
				return errors.New("not yet")
			}
			return nil
		})
	})
}

// TestResetGate: both sides hear of the end as soon as they say something.
func TestResetGate(t *testing.T) {
	for _, offloads := range []bool{true, false} {
		r := newRoad(t, FlowsOptions{Capacity: 4})
		if !offloads {
			r.ClientLink.B.NoOffloads()
			r.BackendLinks[0].B.NoOffloads()
		}
		eachFamily(t, func(t *testing.T, ipv6 bool) {
			s := r.spec(flow.TCP, ipv6)
			w := r.add(t, s, offsets["far apart"])
			client, backend := r.connect(t, s)
			for _, c := range []net.Conn{client, backend} {
				if _, err := io.WriteString(c, "hello"); err != nil {
					t.Fatal(err)
				}
			}
			b := make([]byte, 5)
			for _, c := range []net.Conn{client, backend} {
				_ = c.SetDeadline(time.Now().Add(5 * time.Second))
				if _, err := io.ReadFull(c, b); err != nil {
					t.Fatal(err)
				}
			}
			w.SetGate(GateReset)
			for _, c := range []net.Conn{client, backend} {
				if _, err := c.Write(make([]byte, 30000)); err != nil && !errors.Is(err, syscall.ECONNRESET) {
					t.Error(err)
				}
				if _, err := c.Read(b); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("read: %v", err)
				}
			}
		})
	}
}

// TestWithoutForwarding: the host need not be a router. The way out is then where its own packets go.
func TestWithoutForwarding(t *testing.T) {
	r := newRoad(t, FlowsOptions{Capacity: 4})
	r.Balancer.Forwarding(false)
	eachFamily(t, func(t *testing.T, ipv6 bool) {
		s := r.spec(flow.TCP, ipv6)
		w, err := r.flows.Add(s, GateWatch)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Delete()
		r.say(t, s.Frontend, s.Client)
		r.say(t, s.Local, s.Backend)
		for d := range directions {
			testnet.Eventually(t, 5*time.Second, "a device is known", func() error {
				if w.at.Paths[d].Device == 0 {
					return errors.New("not yet")
				}
				return nil
			})
			w.at.Paths[d].Track = flowTrack{} // they were refused
		}
		w.SetGate(GateForward)
		client, backend := r.connect(t, s)
		exchange(t, client, backend, 1<<20)
	})
}

// say makes the balancer send something from one address to another, which refuses it.
func (r *road) say(t testing.TB, from, to netip.AddrPort) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if conn, err := r.Balancer.DialContext(ctx, "tcp", from, to); err == nil {
		_ = conn.Close()
	}
}

// TestDrain: what is new waits at the gate, and its sender's acknowledgements still pass.
func TestDrain(t *testing.T) {
	for _, offloads := range []bool{true, false} {
		r := newRoad(t, FlowsOptions{Capacity: 4})
		if !offloads {
			r.ClientLink.B.NoOffloads()
		}
		eachFamily(t, func(t *testing.T, ipv6 bool) {
			s := r.spec(flow.TCP, ipv6)
			w, err := r.flows.Add(s, GateWatch)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Delete()
			ln, err := r.Balancer.Listen("tcp", s.Frontend)
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			client := r.dial(t, s)
			defer client.Close()
			here, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer here.Close()
			echo := func(c net.Conn, what string) {
				t.Helper()
				_ = c.SetDeadline(time.Now().Add(5 * time.Second))
				if _, err := io.WriteString(c, what); err != nil {
					t.Fatal(err)
				}
			}
			expect := func(c net.Conn, what string) {
				t.Helper()
				b := make([]byte, len(what))
				if _, err := io.ReadFull(c, b); err != nil || string(b) != what {
					t.Fatalf("read %q, %v", b, err)
				}
			}
			echo(client, "before")
			expect(here, "before")
			w.SetGate(GateDrain)
			echo(here, "question")
			expect(client, "question")
			echo(client, "answer")
			// Not delayed: the answer's acknowledgement comes with the answer, whose payload is held.
			testnet.Eventually(t, 5*time.Second, "the question is acknowledged", func() error { return empty(t, here) })
			_ = here.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if n, err := here.Read(make([]byte, 9)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("%d bytes passed, %v", n, err)
			}
			if got := w.State().Directions[ToBackend]; !got.Held || !got.HasEnd || got.Enter != got.Leave {
				t.Errorf("%+v", got)
			}
			w.SetGate(GateWatch)
			_ = here.SetReadDeadline(time.Now().Add(5 * time.Second))
			expect(here, "answer")
		})
	}
}

// empty reports whether all that was written is acknowledged.
func empty(t testing.TB, c net.Conn) error {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if e := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
	if n > 0 {
		return errors.New("bytes are still queued")
	}
	return nil
}

// TestParkedPacketsGoOn: what was held at the lot goes the way that the gate says at its release, to the stack or on.
func TestParkedPacketsGoOn(t *testing.T) {
	r := newRoad(t, FlowsOptions{Capacity: 4})
	var lot *Lot
	var err error
	r.Balancer.Do(func() { lot, err = OpenLot(r.flows) })
	must(t, err)
	defer lot.Close()
	eachFamily(t, func(t *testing.T, ipv6 bool) {
		s := r.spec(flow.TCP, ipv6)
		w := r.add(t, s, offsets["far apart"])
		client, backend := r.connect(t, s)
		release := func(g Gate, from, to *net.TCPConn, what string) {
			t.Helper()
			w.SetGate(g)
			if _, err := io.WriteString(from, what); err != nil {
				t.Fatal(err)
			}
			testnet.Eventually(t, 5*time.Second, "something is held", func() error {
				if st := w.State(); !st.Directions[ToBackend].Held && !st.Directions[ToClient].Held {
					return errors.New("not yet")
				}
				return nil
			})
			w.SetGate(GateForward)
			must(t, Grace())
			if n, err := lot.Release(w); n == 0 || err != nil {
				t.Errorf("released %d, %v", n, err)
			}
			b := make([]byte, len(what))
			_ = to.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := io.ReadFull(to, b); err != nil || string(b) != what {
				t.Errorf("read %q, %v", b, err)
			}
		}
		release(GateFreeze, client, backend, "frozen")
		release(GateFreeze, backend, client, "frozen on the way back")
		exchange(t, client, backend, 1<<20)
	})
	if c := r.counts(t); c[FlowsParked] == 0 || c[FlowsHeld] != 0 {
		t.Errorf("counted %v", c)
	}
}
