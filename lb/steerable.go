package lb

import (
	"fmt"

	"github.com/baton-lb/baton/internal/flow"
)

const terminatesNothing = "mode steer terminates nothing"

// obstacle is something that only a terminated flow can have.
type obstacle struct {
	field string
	why   flow.NotSteered
	meets func(*Service) bool
	says  func(*Service) string
}

// obstacles to mode steer: the program in the kernel forwards packets, and makes none.
var obstacles = []obstacle{
	{
		"clientAddress", flow.NotSteeredClientAddress,
		func(s *Service) bool { return s.ClientAddress == ProxyV1 || s.ClientAddress == ProxyV2 },
		func(s *Service) string {
			return fmt.Sprintf("%s needs a connection of our own, and %s: use masked or transparent, or mode proxy", s.ClientAddress, terminatesNothing)
		},
	},
	{
		"acceptProxy", flow.NotSteeredAcceptProxy,
		func(s *Service) bool { return len(s.AcceptProxy) > 0 },
		func(*Service) string {
			return "a header comes with the first bytes, and " + terminatesNothing + ": use mode proxy"
		},
	},
	{
		"limits.perClient", flow.NotSteeredChoose,
		func(s *Service) bool {
			return s.Limits.PerClient > 0 && (s.Steer.Choose == ChooseTicket || s.Steer.Choose == ChooseTable)
		},
		func(*Service) string {
			return "connections are counted by client only where the process is asked for each: use steer.choose packet or auto"
		},
	},
	{
		"steer.choose", flow.NotSteeredChoose,
		func(s *Service) bool {
			return (s.Balance == SourceHash || s.Balance == Maglev) && s.Steer.Choose == ChooseTicket
		},
		func(s *Service) string {
			return fmt.Sprintf("%s depends on the client, and a ticket is made before there is one: use table", s.Balance)
		},
	},
}

// NotSteerable says why a service cannot be steered, whatever its mode is; "" = it can be.
func (s *Service) NotSteerable() flow.NotSteered {
	for _, o := range obstacles {
		if o.meets(s) {
			return o.why
		}
	}
	return ""
}

// validateSteer refuses what a steered service cannot have.
func (s *Service) validateSteer(f *faults) {
	if s.Mode != flow.ModeSteer {
		return
	}
	for _, o := range obstacles {
		if o.meets(s) {
			f.add(o.field, "%s", o.says(s))
		}
	}
}

// Steered reports whether the kernel's program can take the packets of a frontend: it looks for the address that a packet asks
// for, and there is one for each.
func (f *Frontend) Steered() bool {
	return (f.Proto == flow.TCP || f.Proto == flow.UDP) && !f.Address.Addr().IsUnspecified() && len(f.More) == 0
}
