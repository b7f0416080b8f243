package sched

import (
	"sync"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

func TestPriorities(t *testing.T) {
	for _, c := range []struct {
		name       string
		priorities []uint16
		states     string
		full       string // letters
		tried      string
		want       string
	}{
		{"lowest number first", []uint16{1, 0, 0, 2}, "++++", "", "", "bc"},
		{"the higher one is unhealthy", []uint16{0, 1, 1}, "u++", "", "", "bc"},
		{"the higher one is drained", []uint16{0, 7}, "d+", "", "", "b"},
		{"the higher ones are full", []uint16{0, 0, 1}, "+++", "ab", "", "c"},
		{"one of the higher ones is full", []uint16{0, 0, 1}, "+++", "a", "", "b"},
		{"the higher ones are tried", []uint16{0, 0, 1}, "+++", "", "ab", "c"},
		{"full and tried", []uint16{0, 0, 1, 2}, "++++", "a", "b", "c"},
		{"two levels down", []uint16{0, 1, 2}, "+++", "a", "b", "c"},
		{"all unhealthy: priorities still count", []uint16{1, 0}, "uu", "", "", "b"},
		{"a healthy lower one before an unhealthy higher one", []uint16{0, 1}, "u+", "", "", "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachAlgorithm(t, func(t *testing.T, a lb.Algorithm) {
				p := poolOf(c.states)
				for i, b := range p.backends {
					b.Priority = c.priorities[i]
				}
				fill(t, p, c.full)
				s := New(a, p.backends, Options{Seed: 1})
				if got := distinct(picks(t, s, 200, p.named(c.tried)...)); got != c.want {
					t.Errorf("picked %q, want %q", got, c.want)
				}
			})
		})
	}
}

func TestZones(t *testing.T) {
	for _, c := range []struct {
		name       string
		zone       string
		zones      []string
		priorities []uint16
		states     string
		full       string
		tried      string
		want       string
	}{
		{"no zone of our own", "", []string{"a", "b"}, nil, "++", "", "", "ab"},
		{"same zone", "a", []string{"b", "a", "a"}, nil, "+++", "", "", "bc"},
		{"none in our zone", "z", []string{"b", "a", ""}, nil, "+++", "", "", "abc"},
		{"one without a zone is not ours", "a", []string{"", "a"}, nil, "++", "", "", "b"},
		{"ours is unhealthy", "a", []string{"a", "b"}, nil, "u+", "", "", "b"},
		{"ours is full", "a", []string{"a", "b"}, nil, "++", "a", "", "b"},
		{"ours is tried", "a", []string{"a", "b"}, nil, "++", "", "a", "b"},
		{"priority before zone", "a", []string{"a", "b"}, []uint16{1, 0}, "++", "", "", "b"},
		{"far of this priority before near of the next", "a", []string{"a", "b", "a"}, []uint16{0, 0, 1}, "+++", "", "a", "b"},
		{"then near of the next", "a", []string{"a", "b", "a", "b"}, []uint16{0, 0, 1, 1}, "++++", "", "ab", "c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachAlgorithm(t, func(t *testing.T, a lb.Algorithm) {
				p := poolOf(c.states)
				for i, b := range p.backends {
					b.Zone = c.zones[i]
					if c.priorities != nil {
						b.Priority = c.priorities[i]
					}
				}
				fill(t, p, c.full)
				s := New(a, p.backends, Options{Seed: 1, Zone: c.zone})
				if got := distinct(picks(t, s, 200, p.named(c.tried)...)); got != c.want {
					t.Errorf("picked %q, want %q", got, c.want)
				}
			})
		})
	}
}

func TestNothingLeft(t *testing.T) {
	for _, c := range []struct {
		name, states, full, tried string
		want                      error
	}{
		{"none listed", "", "", "", ErrNoBackend},
		{"none usable", "ds", "", "", ErrNoBackend},
		{"all full", "++", "ab", "", ErrBackendsFull},
		{"all tried", "++", "", "ab", ErrAllTried},
		{"all of the usable ones tried", "+d+", "", "ac", ErrAllTried},
		{"some full, the others tried", "++", "a", "b", ErrBackendsFull},
		{"all full and tried", "++", "ab", "ab", ErrAllTried},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachAlgorithm(t, func(t *testing.T, a lb.Algorithm) {
				p := poolOf(c.states)
				fill(t, p, c.full)
				s := New(a, p.backends, Options{Seed: 1})
				for i := range 20 {
					b, err := s.Pick(Request{Client: client(i), Tried: p.named(c.tried)})
					if b != nil || err != c.want {
						t.Fatalf("picked %s, %v; want %v", name(b), err, c.want)
					}
				}
			})
		})
	}
}

// A flow outlives a reload: what it tried is of an older snapshot.
func TestTriedIsByAddress(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a lb.Algorithm) {
		before, after := equalPool(3), equalPool(3)
		s := New(a, after.backends, Options{Seed: 1})
		if got := distinct(picks(t, s, 100, before.backends[0], before.backends[2])); got != "b" {
			t.Errorf("picked %q, want b", got)
		}
	})
}

// The store keeps one of two backends with one address; should both arrive
// here, the ready one is used, whatever the order, and trying it tries both.
func TestSameAddressTwice(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a lb.Algorithm) {
		for _, order := range []string{"d+", "+d", "t+", "+t", "u+", "+u"} {
			p := poolOf(order)
			for _, b := range p.backends {
				b.Address = addrOf(0)
			}
			s := New(a, p.backends, Options{Seed: 1})
			for i := range 20 {
				if b := mustPick(t, s, Request{Client: client(i)}); !b.TakesNew() {
					t.Fatalf("%s: picked the one that takes no new flows", order)
				}
			}
		}
		p := poolOf("+++")
		p.backends[1].Address = p.backends[0].Address
		s := New(a, p.backends, Options{Seed: 1})
		if got := distinct(picks(t, s, 50, p.backends[0])); got != "c" {
			t.Errorf("after one of two with this address was tried: %q, want c", got)
		}
		if again := New(a, p.backends, Options{Seed: 1, Previous: s}); again.Usable() != 3 {
			t.Errorf("usable after a reload: %d", again.Usable())
		}
	})
}

func TestUnknownAlgorithmIsRoundRobin(t *testing.T) {
	s := New("", equalPool(3).backends, Options{})
	if got := picks(t, s, 5); got != "abcab" {
		t.Errorf("picked %q", got)
	}
}

func TestConcurrentPicks(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a lb.Algorithm) {
		for _, weights := range [][]uint16{{1, 1, 1, 1}, {1, 2, 3, 65535}} {
			p := newPool(weights...)
			p.backends[3].MaxConnections = 3
			s := New(a, p.backends, Options{})
			var wg sync.WaitGroup
			for g := range 4 {
				wg.Go(func() { pickAndServe(t, p, s, g) })
			}
			for range 20 { // reloads meanwhile
				New(a, p.backends, Options{Previous: s})
			}
			wg.Wait()
		}
	})
}

// pickAndServe opens and ends flows; it never meets an error, as at most four
// run at once and only one backend has a limit.
func pickAndServe(t *testing.T, p *pool, s *Scheduler, g int) {
	for i := range 300 {
		b, err := s.Pick(Request{Client: client(g*1000 + i)})
		if err != nil {
			t.Error(err)
			return
		}
		rec := p.registry.Open(flow.Spec{Proto: flow.TCP, Client: client(i), Frontend: addrOf(0)})
		rec.Assign(flow.Assignment{Backend: b.Address, Load: b.Load, Limit: b.MaxConnections})
		rec.Finish(flow.ByClient, flow.ReasonClosed)
	}
}

func TestPickDoesNotAllocate(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a lb.Algorithm) {
		for _, weights := range [][]uint16{{1, 1, 1, 1}, {1, 2, 3, 4}} {
			p := newPool(weights...)
			p.backends[2].MaxConnections = 1
			p.open(t, p.backends[2], 1)
			s := New(a, p.backends, Options{})
			tried := []*Backend{p.backends[0]}
			i := 0
			n := testing.AllocsPerRun(100, func() {
				i++
				_, _ = s.Pick(Request{Client: client(i)})
				_, _ = s.Pick(Request{Client: client(i), Tried: tried})
				_, _ = s.Pick(Request{Client: client(i), Tried: p.backends})
			})
			if n != 0 {
				t.Errorf("weights %v: %v allocations", weights, n)
			}
		}
	})
}

// fill opens flows up to a limit on the backends with these letters.
func fill(t *testing.T, p *pool, letters string) {
	t.Helper()
	for _, b := range p.named(letters) {
		b.MaxConnections = 2
		p.open(t, b, 2)
	}
}

func (p *pool) named(letters string) []*Backend {
	var out []*Backend
	for _, c := range letters {
		out = append(out, p.backends[c-'a'])
	}
	return out
}
