package relay

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// members makes some.
func members(n int) (all []member) {
	for i := range n {
		all = append(all, member{"web", netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)})
	}
	return all
}

// Backends whose time is up at about the same time end together; one that has
// come back does not end.
func TestDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var all [][]member
		ended := func() [][]member {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		var d drains
		d.init(func(m []member) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, m)
		})
		const n = 1000
		list := members(n)
		for i, m := range list {
			d.start(m, time.Minute+time.Duration(i)*time.Microsecond)
			d.start(m, time.Second) // the first one counts
		}
		late := member{"late", list[0].backend}
		d.start(late, 2*time.Minute)
		d.cancel(list[7])
		d.cancel(list[7])
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		if rounds := ended(); len(rounds) != 0 {
			t.Errorf("%d rounds before the time", len(rounds))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if rounds := ended(); len(rounds) != 1 || len(rounds[0]) != n-1 || slices.Contains(rounds[0], list[7]) {
			t.Errorf("%d rounds", len(rounds))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if rounds := ended(); len(rounds) != 2 || !slices.Equal(rounds[1], []member{late}) {
			t.Errorf("then %d rounds", len(rounds))
		}
		d.start(late, time.Minute)
		d.close()
		d.start(late, time.Minute) // too late
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(ended()) != 2 {
			t.Error("a closed drain ended something")
		}
	})
}

// What a removed backend's flows get is what the policy says, and flows of other
// backends do not notice.
func TestBackendRemoved(t *testing.T) {
	for policy, want := range map[lb.RemovedPolicy]flow.Reason{
		lb.Keep: "", lb.Reset: flow.ReasonBackendRemoved, lb.Drain: flow.ReasonDrainTimeout,
	} {
		t.Run(string(policy), func(t *testing.T) {
			w := newWorld(t, Options{})
			a, _ := backend(t, testnet.Named("a"))
			b, _ := backend(t, testnet.Named("b"))
			s := service("web", vip, a, b)
			s.OnBackendRemoved, s.DrainTimeout = policy, 300*time.Millisecond
			w.serve(s)
			conns := make(map[string]io.ReadWriter)
			var gone string
			for range 2 {
				c := dial(t, vip)
				name, err := testnet.ReadName(c)
				if err != nil {
					t.Fatal(err)
				}
				conns[name] = c
				if name == "a" {
					gone = c.LocalAddr().String()
				}
			}
			s.Backends = s.Backends[1:]
			w.serve(s)
			for range 4 {
				c := dial(t, vip)
				if name, err := testnet.ReadName(c); name != "b" {
					t.Errorf("a new flow got %q, %v", name, err)
				}
				c.Close()
			}
			if want == "" {
				for name := range conns {
					if err := askOn(conns[name]); err != nil {
						t.Errorf("the flow of %s: %v", name, err)
					}
				}
				return
			}
			v := w.wantEnded(flow.ByBaton, want)
			if v.Client.String() != gone || v.Backend != a {
				t.Errorf("ended: %+v", v)
			}
			if err := askOn(conns["b"]); err != nil {
				t.Errorf("the flow of b: %v", err)
			}
		})
	}
}

func askOn(c io.ReadWriter) error {
	if _, err := io.WriteString(c, "still there?"); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, len("still there?")))
	return err
}

// A backend that comes back while it drains keeps its flows.
func TestDrainThatIsCalledOff(t *testing.T) {
	w := newWorld(t, Options{})
	a, _ := backend(t, testnet.Named("a"))
	b, _ := backend(t, testnet.Named("b"))
	s := service("web", vip, a, b)
	s.OnBackendRemoved, s.DrainTimeout = lb.Drain, 300*time.Millisecond
	w.serve(s)
	conns := []*net.TCPConn{dial(t, vip), dial(t, vip)}
	for _, c := range conns {
		if _, err := testnet.ReadName(c); err != nil {
			t.Fatal(err)
		}
	}
	less := s
	less.Backends = nil
	w.serve(less)
	w.serve(s)
	time.Sleep(500 * time.Millisecond)
	for i, c := range conns {
		if err := askOn(c); err != nil {
			t.Errorf("flow %d: %v", i, err)
		}
	}
}

// Ending the flows of many backends looks at all flows once.
func BenchmarkEndFlows(b *testing.B) {
	w := newWorld(b, Options{})
	for i := range 100_000 {
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), uint16(i>>8+1))
		rec := w.registry.Open(flow.Spec{Proto: flow.TCP, Service: fmt.Sprint(i % 1000), Frontend: vip, Client: client})
		defer rec.Finish(flow.ByBaton, flow.ReasonShutdown)
	}
	gone := make(map[member]flow.Reason)
	for _, m := range members(1000) {
		gone[m] = flow.ReasonDrainTimeout
	}
	for b.Loop() {
		w.relay.endFlows(gone)
	}
}
