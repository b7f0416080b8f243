package steer

import (
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// Wants reports whether a service asks for mode steer.
func Wants(s *store.Service) bool { return s.Mode == flow.ModeSteer }

func (s *Steer) wants(v *store.Service) bool { return v != nil && s.o.Wants(v) }

// fits reports whether the program can take a frontend's packets: it looks for the address that a packet asks for, and
// there is one for each.
func fits(f *lb.Frontend) bool {
	return (f.Proto == flow.TCP || f.Proto == flow.UDP) && !f.Address.Addr().IsUnspecified() && len(f.More) == 0
}
