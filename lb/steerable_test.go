package lb

import (
	"net/netip"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
)

// What only a terminated flow can have is refused by name where nothing is terminated.
func TestSteerable(t *testing.T) {
	for _, c := range []struct {
		change func(*Service)
		want   string // "" = it can be
	}{
		{func(s *Service) {}, ""},
		{func(s *Service) { s.ClientAddress = Transparent }, ""},
		{func(s *Service) { s.Affinity.By = ByClientIP }, ""},
		{func(s *Service) { s.Balance, s.Steer.Choose = Maglev, ChooseTable }, ""},
		{func(s *Service) { s.Balance, s.Steer.Choose = LeastConnections, ChooseTable }, ""},
		{func(s *Service) { s.Limits = Limits{Connections: 1, NewPerSecond: 1, UDPSessions: 1} }, ""},
		{func(s *Service) { s.ClientAddress = ProxyV2 }, "clientAddress: proxy-v2 needs a connection of our own, and mode steer terminates nothing: use masked or transparent, or mode proxy"},
		{func(s *Service) { s.AcceptProxy = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} }, "acceptProxy: a header comes with the first bytes, and mode steer terminates nothing: use mode proxy"},
		{func(s *Service) { s.Limits.PerClient = 1 }, ""},
		{func(s *Service) { s.Limits.PerClient, s.Steer.Choose = 1, ChoosePacket }, ""},
		{func(s *Service) { s.Limits.PerClient, s.Steer.Choose = 1, ChooseTicket }, "limits.perClient: connections are counted by client only where the process is asked for each: use steer.choose packet or auto"},
		{func(s *Service) { s.Balance, s.Steer.Choose = SourceHash, ChooseTicket }, "steer.choose: source-hash depends on the client, and a ticket is made before there is one: use table"},
	} {
		s := valid()
		s.Mode = flow.ModeSteer
		c.change(s)
		faults, notBuilt := faultsOf(t, s)
		if len(notBuilt) > 0 || c.want == "" && len(faults) > 0 || c.want != "" && (len(faults) != 1 || faults[0] != c.want) {
			t.Errorf("faults %q, %q; want %q", faults, notBuilt, c.want)
		}
	}
}
