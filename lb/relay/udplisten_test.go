package relay

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// draining makes every backend of a service drain.
func draining(s lb.Service) lb.Service {
	s.Backends = append([]lb.Backend(nil), s.Backends...)
	for i := range s.Backends {
		s.Backends[i].State = lb.StateDrain
	}
	return s
}

// A frontend whose backends all drain serves the sessions that are there, from
// whatever loop, gives nobody a new one, and refuses once the last has ended.
func TestUDPRetires(t *testing.T) {
	for _, loops := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d loops", loops), func(t *testing.T) {
			b := newUDPBackend(t, "a")
			w := newWorld(t, Options{Loops: loops})
			svc := udpOf(service("dns", udpVIP, b.addr))
			w.serve(svc)
			var old []*net.UDPConn
			for range 12 {
				old = append(old, udpClientTo(t, udpVIP))
				ask(t, old[len(old)-1], b)
			}
			w.serve(draining(svc))
			ended := make(map[string]bool)
			for i, rec := range w.sessions(len(old)) {
				for _, c := range old {
					if !ended[c.LocalAddr().String()] {
						ask(t, c, b)
					}
				}
				ended[rec.View().Client.String()] = true
				send(t, udpClientTo(t, udpVIP), "new")
				w.wantDrops(flow.DropNoBackend, uint64(i+1))
				rec.End(flow.ByBaton, flow.ReasonAdminReset)
				w.sessions(len(old) - i - 1)
			}
			if n := len(b.senders()); n != len(old) {
				t.Errorf("the backend saw %d sources of %d clients", n, len(old))
			}
			refuses(t, udpVIP)
			// It is wanted again.
			w.serve(svc)
			ask(t, udpClientTo(t, udpVIP), b)
		})
	}
}

// A frontend that is wanted again before its last session has ended goes on, with
// that session.
func TestUDPRetirementIsTakenBack(t *testing.T) {
	b := newUDPBackend(t, "a")
	w := newWorld(t, Options{Loops: 3})
	svc := udpOf(service("dns", udpVIP, b.addr))
	w.serve(svc)
	old := udpClientTo(t, udpVIP)
	ask(t, old, b)
	for range 5 {
		w.serve(draining(svc))
		ask(t, old, b)
		w.serve(svc)
		ask(t, old, b)
		c := udpClientTo(t, udpVIP)
		ask(t, c, b)
		c.Close()
	}
	if n := len(b.senders()); n != 6 {
		t.Errorf("the backend saw %d sources of 6 clients", n)
	}
	w.serve()
	w.sessions(0)
	refuses(t, udpVIP)
}

// A frontend without backends refuses; with the first one the same client's socket
// is served.
func TestUDPBackendComes(t *testing.T) {
	b := newUDPBackend(t, "a")
	w := newWorld(t, Options{Loops: 2})
	w.serve(udpOf(service("dns", udpVIP)))
	c := udpClientTo(t, udpVIP)
	refuses(t, udpVIP)
	w.serve(udpOf(service("dns", udpVIP, b.addr)))
	testnet.Eventually(t, patience, "the client is served", func() error {
		_, _ = c.Write([]byte("x"))
		_, err := take(c, 100*time.Millisecond)
		return err
	})
	w.serve(udpOf(service("dns", udpVIP)))
	w.sessions(0)
	refuses(t, udpVIP)
}

// Clients that send while all sockets of a frontend are opened have one session
// each: the kernel does not give their datagrams to one socket first and to another
// then.
func TestUDPOpensAtOnce(t *testing.T) {
	b := newUDPBackend(t, "a")
	b.mute()
	w := newWorld(t, Options{Loops: 6})
	var stop atomic.Bool
	var running sync.WaitGroup
	const clients = 30
	for range clients {
		c := udpClientTo(t, udpVIP)
		running.Go(func() {
			for !stop.Load() {
				_, _ = c.Write([]byte("x"))
				time.Sleep(50 * time.Microsecond)
			}
		})
	}
	for round := range 10 {
		w.serve(udpOf(service("dns", udpVIP, b.addr)))
		w.sessions(clients)
		w.serve()
		w.sessions(0)
		if n := len(w.registry.LastEnded()); n != (round+1)*clients {
			t.Errorf("%d clients had %d sessions in %d rounds", clients, n, round+1)
		}
	}
	stop.Store(true)
	running.Wait()
}

// A port that somebody else has is that frontend's failure, and tried again.
func TestUDPPortTaken(t *testing.T) {
	b := newUDPBackend(t, "a")
	other := netip.MustParseAddrPort("127.0.1.1:54")
	taken := udpBackendAt(t, "somebody else", udpVIP)
	w := newWorld(t, Options{Loops: 3})
	svc := udpOf(service("dns", udpVIP, b.addr))
	svc.Frontends = append(svc.Frontends, udpOf(service("", other)).Frontends...)
	if err := w.source.Replace([]lb.Service{svc}); err != nil {
		t.Fatal(err)
	}
	testnet.Eventually(t, patience, "the frontend has failed", func() error {
		if f := w.store.Failures(); len(f) != 1 || f[0].Frontend.Address != udpVIP {
			return fmt.Errorf("failures: %v", f)
		}
		return nil
	})
	ask(t, udpClientTo(t, other), b)
	taken.close()
	testnet.Eventually(t, patience, "it has been tried again", func() error {
		if f := w.store.Failures(); len(f) > 0 {
			return fmt.Errorf("failures: %v", f)
		}
		return nil
	})
	ask(t, udpClientTo(t, udpVIP), b)
}

// The same port is TCP's and UDP's.
func TestUDPAndTCPAtOnePort(t *testing.T) {
	b := newUDPBackend(t, "a")
	tb, _ := backend(t, testnet.Named("tcp"))
	w := newWorld(t, Options{Loops: 2})
	w.serve(udpOf(service("udp", vip, b.addr)), service("tcp", vip, tb))
	ask(t, udpClientTo(t, vip), b)
	if name, err := testnet.ReadName(dial(t, vip)); name != "tcp" || err != nil {
		t.Errorf("TCP: %q, %v", name, err)
	}
}

// Frontends come and go beside traffic; nothing is left in the end.
func TestUDPChurn(t *testing.T) {
	a, b := newUDPBackend(t, "a"), newUDPBackend(t, "b")
	w := newWorld(t, Options{Loops: 3})
	both := udpOf(service("dns", udpVIP, a.addr, b.addr))
	var stop atomic.Bool
	var running sync.WaitGroup
	var answers atomic.Int64
	for range 8 {
		running.Go(func() {
			for !stop.Load() {
				c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(udpVIP))
				if err != nil {
					continue
				}
				for range 10 {
					_, _ = c.Write([]byte("x"))
					if _, err := take(c, 5*time.Millisecond); err == nil {
						answers.Add(1)
					}
				}
				c.Close()
			}
		})
	}
	few := both
	few.Limits.UDPSessions = 3
	for range 15 {
		for _, svc := range [][]lb.Service{
			{both}, {draining(both)}, {udpOf(service("dns", udpVIP, b.addr))}, {few}, {}, {both}, {udpOf(service("dns", udpVIP))},
			{udpOf(service("another", udpVIP, a.addr))},
		} {
			w.serve(svc...)
		}
	}
	stop.Store(true)
	running.Wait()
	if answers.Load() == 0 {
		t.Error("nobody was served")
	}
	a.close()
	b.close()
	w.leaks()
}
