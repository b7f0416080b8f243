package lb

import "github.com/baton-lb/baton/internal/flow"

// validateSteer refuses what only a terminated flow can have: the program in the kernel
// forwards packets, it makes none and remembers no client but for affinity.
func (s *Service) validateSteer(f *faults) {
	if s.Mode != flow.ModeSteer {
		return
	}
	const why = "mode steer terminates nothing"
	if s.ClientAddress == ProxyV1 || s.ClientAddress == ProxyV2 {
		f.add("clientAddress", "%s needs a connection of our own, and %s: use masked or transparent, or mode proxy", s.ClientAddress, why)
	}
	if len(s.AcceptProxy) > 0 {
		f.add("acceptProxy", "a header comes with the first bytes, and %s: use mode proxy", why)
	}
	if s.Limits.PerClient > 0 {
		f.add("limits.perClient", "connections are not counted by client where the kernel carries them: use mode proxy")
	}
	if table := s.Balance == SourceHash || s.Balance == Maglev; table && s.Steer.Choose == ChooseTicket {
		f.add("steer.choose", "%s depends on the client, and a ticket is made before there is one: use table", s.Balance)
	}
}
