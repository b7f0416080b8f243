package sched

import (
	"testing"

	"github.com/baton-lb/baton/lb"
)

// states of backends in the tables below.
var states = map[rune]func(*Backend){
	'+': func(*Backend) {},
	'u': func(b *Backend) { b.Unhealthy = true },
	'd': func(b *Backend) { b.Drained = true },
	'0': func(b *Backend) { b.Weight = 0 },
	's': func(b *Backend) { b.State = lb.StateDrain },
	't': func(b *Backend) { b.Terminating = true },
	'v': func(b *Backend) { b.Terminating, b.Unhealthy = true, true },
	'x': func(b *Backend) { b.Terminating, b.NotServing = true, true },
	'n': func(b *Backend) { b.NotServing = true },
}

func poolOf(letters string) *pool {
	p := equalPool(len(letters))
	for i, c := range letters {
		states[c](p.backends[i])
	}
	return p
}

func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		name, states, want string // want: each once, sorted; "" = ErrNoBackend
		allUnhealthy       bool
	}{
		{"none listed", "", "", false},
		{"all ready", "+++", "abc", false},
		{"one unhealthy", "+u+", "ac", false},
		{"all unhealthy: all are used", "uu", "ab", true},
		{"all unhealthy but for one out of service", "ud", "a", true},
		{"an unhealthy one before one that terminates", "ut", "a", true},
		{"drained", "d+", "b", false},
		{"all drained", "dd", "", false},
		{"weight 0", "0+", "b", false},
		{"all out of service", "0sn", "", false},
		{"one terminating", "t+", "b", false},
		{"all terminating: those that serve", "txt", "ac", false},
		{"terminating, the unhealthy ones last", "vt", "b", false},
		{"terminating and unhealthy", "vx", "a", true},
		{"terminating, none serves", "xx", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachAlgorithm(t, func(t *testing.T, a lb.Algorithm) {
				p := poolOf(c.states)
				s := New(a, p.backends, Options{Seed: 1})
				if s.Usable() != len(c.want) || s.AllUnhealthy() != c.allUnhealthy {
					t.Errorf("usable %d, all unhealthy %v; want %d, %v",
						s.Usable(), s.AllUnhealthy(), len(c.want), c.allUnhealthy)
				}
				checkAllows(t, s, p, c.want)
				if c.want == "" {
					if b, err := s.Pick(Request{Client: client(1)}); err != ErrNoBackend {
						t.Errorf("picked %s, %v; want ErrNoBackend", name(b), err)
					}
					return
				}
				if got := distinct(picks(t, s, 200)); got != c.want {
					t.Errorf("picked %q, want %q", got, c.want)
				}
			})
		})
	}
}

func checkAllows(t *testing.T, s *Scheduler, p *pool, want string) {
	t.Helper()
	got := ""
	for _, b := range p.backends {
		if s.Allows(b) {
			got += name(b)
		}
	}
	if got != want {
		t.Errorf("allows %q, want %q", got, want)
	}
}

// distinct is the letters of s in order, each once.
func distinct(s string) string {
	out := ""
	for c := 'a'; c <= 'z'; c++ {
		for _, d := range s {
			if c == d {
				out += string(c)
				break
			}
		}
	}
	return out
}
