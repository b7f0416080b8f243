package lb

import "github.com/baton-lb/baton/internal/flow"

// validateSteer refuses what only a terminated flow can have: the program in the kernel
// forwards packets, and makes none.
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
	if c := s.Steer.Choose; s.Limits.PerClient > 0 && (c == ChooseTicket || c == ChooseTable) {
		f.add("limits.perClient", "connections are counted by client only where the process is asked for each: use steer.choose packet or auto")
	}
	if table := s.Balance == SourceHash || s.Balance == Maglev; table && s.Steer.Choose == ChooseTicket {
		f.add("steer.choose", "%s depends on the client, and a ticket is made before there is one: use table", s.Balance)
	}
}
