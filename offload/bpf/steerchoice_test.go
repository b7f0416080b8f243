package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb/steer/program"
)

// backendsOf makes n flows, one after the other, and says which backends they got.
func (r *steerRoad) backendsOf(t testing.TB, k kind, n int) (got []program.BackendID) {
	t.Helper()
	seen := make(map[program.Ref]bool)
	for _, f := range r.all(t) {
		seen[f.Ref] = true
	}
	for range n {
		c := r.dial(t, k.vip(frontendPort), netip.AddrPort{})
		whoAmI(t, c)
		for _, f := range r.all(t) {
			if !seen[f.Ref] {
				got = append(got, f.Backend)
				seen[f.Ref] = true
			}
		}
	}
	return got
}

// TestSteerTickets: choices are used in their order; when they are used up the table goes on.
func TestSteerTickets(t *testing.T) {
	r := newSteerRoad(t, 2, FlowsOptions{})
	r.serve()
	k := kind{flow.TCP, false, true}
	r.program(t, k, program.ByTicket, func(_ *program.Service, _ []program.Backend, p *program.Pool, _ *program.Frontend) {
		p.Table = []program.BackendID{2}
	})
	tickets := []program.BackendID{1, 1, 2, 1}
	if n, err := r.steer.Refill(thePool, tickets); n != 4 || err != nil {
		t.Fatalf("refilled %d, %v", n, err)
	}
	if got, want := r.backendsOf(t, k, 6), []program.BackendID{1, 1, 2, 1, 2, 2}; !slices.Equal(got, want) {
		t.Errorf("flows got %v, want %v", got, want)
	}
	if c := r.steer.Counts(); c.Tickets != 4 || c.Tables != 2 {
		t.Errorf("%+v", c)
	}
	if used, waiting := r.steer.Tickets(thePool); used != 4 || waiting != 0 {
		t.Errorf("%d used, %d wait", used, waiting)
	}
	many := slices.Repeat([]program.BackendID{1, 2}, 300)
	n, err := r.steer.Refill(thePool, many)
	if n < 100 || err != nil {
		t.Errorf("refilled %d, %v", n, err)
	}
	if more, err := r.steer.Refill(thePool, many); more != 0 || err != nil {
		t.Errorf("refilled %d more, %v", more, err)
	}
	if back, err := r.steer.Flush(thePool); !slices.Equal(back, many[:n]) || err != nil {
		t.Errorf("took back %v, %v", back, err)
	}
	if used, waiting := r.steer.Tickets(thePool); used != 4+uint64(n) || waiting != 0 {
		t.Errorf("%d used, %d wait", used, waiting)
	}
	// Of a backend that takes no more flows the choices are passed over.
	_, err = r.steer.Refill(thePool, []program.BackendID{1, 1, 2})
	must(t, err)
	r.take(t, 1, k, false)
	if got := r.backendsOf(t, k, 1); !slices.Equal(got, []program.BackendID{2}) {
		t.Errorf("a flow got %v", got)
	}
}

// take says whether a backend takes new flows.
func (r *steerRoad) take(t testing.TB, id program.BackendID, k kind, takes bool) {
	t.Helper()
	l := r.BackendLinks[id-1]
	must(t, r.steer.SetBackend(program.Backend{
		ID: id, Service: theService, Address: netip.AddrPortFrom(k.of(l.B), backendPort), Masked: k.of(l.A), Keep: program.Keep{Near: true, Far: true, Beside: true}, Takes: takes,
	}))
}

// TestSteerTakes: a backend that takes no new flows keeps those that it has; without any left packets are the stack's.
func TestSteerTakes(t *testing.T) {
	r := newSteerRoad(t, 2, FlowsOptions{})
	r.serve()
	eachSteered(t, tcpAndUDP, func(t *testing.T, k kind) {
		r.program(t, k, program.ByTable, nil)
		c := r.dial(t, k.vip(frontendPort), netip.AddrPort{})
		whoAmI(t, c)
		first := r.only(t).Backend
		r.take(t, first, k, false)
		for _, b := range r.backendsOf(t, k, 5) {
			if b == first {
				t.Errorf("backend %d got another flow", b)
			}
		}
		if _, err := c.Write([]byte("x\n")); err != nil {
			t.Error(err)
		}
		if n, err := c.Read(make([]byte, 64)); n == 0 || err != nil {
			t.Errorf("the first flow reads %d, %v", n, err)
		}
		r.take(t, 3-first, k, false)
		if got := r.first(t, k); got != toStack {
			t.Errorf("verdict %d without anybody", int32(got))
		}
	})
}

// TestSteerTableIsSched: a table that mode proxy would use gives the choice that it would make.
func TestSteerTableIsSched(t *testing.T) {
	r := newSteerRoad(t, 2, FlowsOptions{})
	r.serve()
	for _, byAddress := range []bool{false, true} {
		for _, ipv6 := range []bool{false, true} {
			k := kind{flow.TCP, ipv6, true}
			var table []program.BackendID
			for i := range 101 {
				table = append(table, program.BackendID(1+i*7%2))
			}
			r.program(t, k, program.ByTable, func(_ *program.Service, _ []program.Backend, p *program.Pool, _ *program.Frontend) {
				p.Table, p.ByAddress = table, byAddress
			})
			for range 8 {
				whoAmI(t, r.dial(t, k.vip(frontendPort), netip.AddrPort{}))
			}
			for _, f := range r.all(t) {
				if want := table[tableIndex(f.Client, byAddress, len(table))]; f.Backend != want {
					t.Errorf("%s got backend %d, want %d", f.Client, f.Backend, want)
				}
			}
			r.deleteAll(t)
		}
	}
}

// tableIndex is where lb/sched looks a client up.
func tableIndex(client netip.AddrPort, byAddress bool, n int) int {
	mix := func(x uint64) uint64 {
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		return x ^ x>>31
	}
	b := client.Addr().As16()
	h := mix(0x6a09e667f3bcc908 ^ binary.BigEndian.Uint64(b[:8]))
	h = mix(h + 0xbb67ae8584caa73b ^ binary.BigEndian.Uint64(b[8:]))
	if !byAddress {
		h = mix(h + 0x3c6ef372fe94f82b ^ uint64(client.Port()))
	}
	index, _ := bits.Mul64(h, uint64(n))
	return int(index)
}

// TestSteerAffinity: a client stays where it was, for all flows that begin at once too.
func TestSteerAffinity(t *testing.T) {
	r := newSteerRoad(t, 2, FlowsOptions{Capacity: 16})
	r.serve()
	affine := func(s *program.Service, _ []program.Backend, _ *program.Pool, _ *program.Frontend) {
		s.Affinity = time.Hour
	}
	eachSteered(t, tcpAndUDP, func(t *testing.T, k kind) {
		vip := r.program(t, k, program.ByTicket, affine)
		_, err := r.steer.Flush(thePool)
		must(t, err)
		_, err = r.steer.Refill(thePool, slices.Repeat([]program.BackendID{1, 2}, 100))
		must(t, err)
		var wg sync.WaitGroup
		conns := make([]net.Conn, 32)
		for i := range conns {
			wg.Go(func() {
				c, err := r.try(vip, netip.AddrPort{})
				if err == nil {
					_, err = peerOf(c)
				}
				if conns[i] = c; err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		all := r.all(t)
		where := all[0].Backend
		for _, f := range all {
			if f.Backend != where {
				t.Errorf("flows of one client are at %d and at %d", where, f.Backend)
			}
		}
		r.take(t, where, k, false)
		if got := r.backendsOf(t, k, 2); !slices.Equal(got, []program.BackendID{3 - where, 3 - where}) {
			t.Errorf("when backend %d takes no more, flows got %v", where, got)
		}
		r.take(t, where, k, true)
		if got := r.backendsOf(t, k, 2); !slices.Equal(got, []program.BackendID{3 - where, 3 - where}) {
			t.Errorf("and then flows got %v", got)
		}
		for _, c := range conns {
			_ = c.Close()
		}
		if n := r.affinities(t); n != 1 {
			t.Errorf("%d clients are remembered", n)
		}
		r.program(t, k, program.ByTicket, nil) // no affinity any more
		r.all(t)
		if n := r.affinities(t); n != 0 {
			t.Errorf("%d clients are still remembered", n)
		}
	})
}

func (r *steerRoad) affinities(t testing.TB) (n int) {
	t.Helper()
	must(t, inBatches(r.flows.maps.SteerAffinity, func(*flowClientOf, *flowRemembered) bool { n++; return true }))
	return n
}

// TestSteerLimits: who comes too late is refused, and may come again when there is room.
func TestSteerLimits(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{})
	r.serve()
	type change = func(*program.Service, []program.Backend, *program.Pool, *program.Frontend)
	limits := map[string]change{
		"of the service": func(s *program.Service, _ []program.Backend, _ *program.Pool, _ *program.Frontend) {
			s.Connections, s.Sessions = 2, 2
		},
		"of the backend": func(_ *program.Service, b []program.Backend, _ *program.Pool, _ *program.Frontend) { b[0].Limit = 2 },
	}
	eachSteered(t, tcpAndUDP, func(t *testing.T, k kind) {
		for what, limit := range limits {
			vip := r.program(t, k, program.ByTable, limit)
			before := r.steer.Counts().OverLimit
			for range 2 {
				whoAmI(t, r.dial(t, vip, netip.AddrPort{}))
			}
			if _, err := ask(r.Client, vip, errRefused); !errors.Is(err, errRefused) {
				t.Errorf("%s: one more: %v", what, err)
			}
			if r.steer.Counts().OverLimit == before {
				t.Errorf("%s: nobody was counted", what)
			}
			r.deleteAll(t)
			if _, err := ask(r.Client, vip, nil); err != nil {
				t.Errorf("%s: when they are gone: %v", what, err)
			}
			r.deleteAll(t)
		}
	})
}

// TestSteerLimitAtOnce: of connections that begin together no more stay than there may be.
func TestSteerLimitAtOnce(t *testing.T) {
	const most, all = 3, 24
	r := newSteerRoad(t, 1, FlowsOptions{})
	r.serve()
	eachSteered(t, onlyTCP, func(t *testing.T, k kind) {
		vip := r.program(t, k, program.ByTable, func(s *program.Service, _ []program.Backend, _ *program.Pool, _ *program.Frontend) {
			s.Connections = most
		})
		var wg sync.WaitGroup
		var served atomic.Int32
		for range all {
			wg.Go(func() {
				c, err := r.try(vip, netip.AddrPort{})
				if err != nil {
					return // refused
				}
				t.Cleanup(func() { _ = c.Close() })
				if _, err := peerOf(c); err == nil {
					served.Add(1)
				} else if !errors.Is(err, syscall.ECONNRESET) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := served.Load(); n > most || n == 0 || r.steer.Open(1) > most {
			t.Errorf("%d are served, %d open", n, r.steer.Open(1))
		}
	})
}

// TestSteerRate: of flows that begin within one second those beyond the limit are refused.
func TestSteerRate(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{})
	r.serve()
	k := kind{flow.TCP, false, true}
	vip := r.program(t, k, program.ByTable, func(s *program.Service, _ []program.Backend, _ *program.Pool, _ *program.Frontend) {
		s.NewPerSecond = 5
	})
	refused := 0
	testnet.Eventually(t, patience, "somebody is refused", func() error {
		for range 20 {
			if _, err := ask(r.Client, vip, errRefused); errors.Is(err, errRefused) {
				refused++
			}
		}
		if refused == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	testnet.Eventually(t, patience, "somebody is heard again", func() error {
		_, err := ask(r.Client, vip, nil)
		return err
	})
}

// TestSteerSources: clients get what is said of them; the longest prefix counts.
func TestSteerSources(t *testing.T) {
	r := newSteerRoad(t, 2, FlowsOptions{})
	r.serve()
	const inside, sources = program.PoolID(10), program.SourcesID(3)
	eachSteered(t, tcpAndUDP, func(t *testing.T, k kind) {
		if !k.keep {
			return
		}
		client := k.of(r.ClientLink.B)
		all := netip.PrefixFrom(client, 0).Masked()
		other := netip.MustParsePrefix("::/0")
		if k.ipv6 {
			other = netip.MustParsePrefix("0.0.0.0/0")
		}
		set := func(closed program.Verdict, s ...program.Source) {
			t.Helper()
			must(t, r.steer.SetSources(sources, s))
			r.program(t, k, program.ByTable, func(_ *program.Service, _ []program.Backend, p *program.Pool, f *program.Frontend) {
				p.Table = []program.BackendID{1}
				f.Inside, f.Sources, f.Closed = inside, sources, closed
			})
		}
		must(t, r.steer.SetPool(program.Pool{ID: inside, Service: theService, Answer: program.ByTable, Table: []program.BackendID{2}}))
		one := func(v program.Verdict) program.Source {
			return program.Source{Prefix: netip.PrefixFrom(client, client.BitLen()), Verdict: v}
		}
		want := func(what string, backend program.BackendID) {
			t.Helper()
			if got := r.backendsOf(t, k, 1); !slices.Equal(got, []program.BackendID{backend}) {
				t.Errorf("%s: got backend %v, want %d", what, got, backend)
			}
		}
		set(program.SourceRefused, one(program.SourceInside), program.Source{Prefix: all, Verdict: program.SourceDropped})
		want("inside", 2)
		set(program.SourceDropped, one(program.SourceOutside), program.Source{Prefix: all, Verdict: program.SourceRefused})
		want("outside", 1)
		set(program.SourceOutside, program.Source{Prefix: other, Verdict: program.SourceDropped})
		want("of the other family", 1)
		for v, want := range map[program.Verdict]uint32{program.SourceRefused: redirected, program.SourceDropped: dropped} {
			before := r.steer.Counts().RefusedSource
			set(program.SourceOutside, one(v))
			if got := r.first(t, k); got != want {
				t.Errorf("verdict %d: %d, want %d", v, got, want)
			}
			set(v, program.Source{Prefix: other, Verdict: program.SourceInside})
			if got := r.first(t, k); got != want {
				t.Errorf("verdict %d of all others: %d, want %d", v, got, want)
			}
			if n := r.steer.Counts().RefusedSource - before; n != 2 {
				t.Errorf("verdict %d: counted %d", v, n)
			}
		}
		set(program.SourceOutside)
		want("without sources", 1)
		n := 0
		must(t, each(r.flows.maps.SteerSources, func(flowSource, flowClient) error { n++; return nil }))
		if n != 0 {
			t.Errorf("%d sources are left", n)
		}
	})
}

// TestSteerAbsent: new flows wait for no process that is away, unless they are to be refused then.
func TestSteerAbsent(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{})
	r.serve()
	k := kind{flow.TCP, true, false}
	vip := r.program(t, k, program.ByTable, func(_ *program.Service, _ []program.Backend, p *program.Pool, _ *program.Frontend) {
		p.Absent = program.RefuseNew
	})
	if _, err := ask(r.Client, vip, errRefused); !errors.Is(err, errRefused) {
		t.Errorf("before it was there: %v", err)
	}
	testnet.Eventually(t, patience, "the process is there", func() error {
		r.steer.Beat()
		_, err := ask(r.Client, vip, nil)
		return err
	})
	testnet.Eventually(t, patience, "it is not any more", func() error {
		if _, err := ask(r.Client, vip, errRefused); !errors.Is(err, errRefused) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}
