package workload

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/perf/load"
	"github.com/baton-lb/baton/perf/topology"
)

// direct is a cell without a balancer. This process stands for one where memory
// is measured.
func direct(t *testing.T, star topology.Star) *Cell {
	t.Helper()
	testnet.RequireRoot(t)
	h, err := star.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(load.Quiet())
	return &Cell{
		Hosts: h, Processes: []int{os.Getpid()}, Duration: 20 * time.Millisecond,
		Target: func(s topology.Service, i int) netip.AddrPort { return h.BackendAddr(i, s) },
	}
}

// Every workload yields the figures that it promises, and claims what it moved.
func TestAll(t *testing.T) {
	for _, star := range []topology.Star{{}, {IPv6: true}} {
		c := direct(t, star)
		names := make(map[string]bool)
		for _, w := range All(Sizes{Datagrams: 1000, Idle: 50}) {
			spec := w.Spec()
			t.Run(spec.Name+", "+star.Name(), func(t *testing.T) {
				if names[spec.Name] || spec.About == "" || spec.Cost.Scale == 0 {
					t.Errorf("the name is taken, or something is missing: %+v", spec)
				}
				names[spec.Name] = true
				r, err := w.Run(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range spec.Figures {
					if _, ok := r.Values[f.Key]; !ok {
						t.Errorf("there is no figure %s in %v", f.Key, r.Values)
					}
				}
				if r.Work <= 0 || r.Flows <= 0 || r.ToBackend+r.ToClient <= 0 || r.Used.Load <= 0 {
					t.Errorf("the result is %+v", r)
				}
				if len(r.Seen) != 1 || r.Seen[c.Hosts.ClientAt] == 0 {
					t.Errorf("the backends saw %v, want %v", r.Seen, c.Hosts.ClientAt)
				}
			})
		}
	}
}

// Nobody is where the traffic goes: an error, soon, and nothing is left running.
func TestNobodyThere(t *testing.T) {
	c := direct(t, topology.Star{})
	c.Target = func(s topology.Service, _ int) netip.AddrPort {
		return c.Hosts.BackendAddr(0, topology.Service{Port: s.Port + 100})
	}
	for _, w := range []Workload{Bulk{Conns: 1}, Bulk{Conns: 1, Down: true}, Kept{Conns: 2}, Connect{Conns: 2}, Ask{Sockets: 1}, Idle{Conns: 2}} {
		if r, err := w.Run(t.Context(), c); err == nil {
			t.Errorf("%s: %+v", w.Spec().Name, r)
		}
	}
}

// What is lost is counted, and not waited for.
func TestOnewayLost(t *testing.T) {
	c := direct(t, topology.Star{})
	c.Target = func(s topology.Service, _ int) netip.AddrPort { return c.Hosts.VIPAddr(s) } // routed nowhere
	blackhole(t, c.Hosts)
	r, err := Oneway{Datagrams: 500}.Run(t.Context(), c)
	if err != nil || r.Values["lost"] != 500 || len(r.Seen) != 0 {
		t.Errorf("got %+v, %v", r, err)
	}
}

func blackhole(t *testing.T, h *topology.Hosts) {
	t.Helper()
	out, err := h.Balancer.Command(t.Context(), "ip", "route", "add", "blackhole", h.VIP.String()).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestInterrupted(t *testing.T) {
	c := direct(t, topology.Star{})
	ctx, cancel := context.WithCancel(t.Context())
	c.Measuring = cancel
	if _, err := (Kept{Conns: 1}).Run(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestSessions(t *testing.T) {
	var got []int64
	for _, n := range []int{1, 2, 16} {
		got = append(got, sessions(n))
	}
	if !slices.Equal(got, []int64{1, 1, 8}) {
		t.Errorf("got %v", got)
	}
}
