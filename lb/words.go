package lb

import (
	"slices"
	"strings"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// word reports a value that is not in the list.
func word[T ~string](f *faults, field string, v T, known []T) {
	if slices.Contains(known, v) {
		return
	}
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = string(k)
	}
	f.add(field, "%q is unknown: use %s", string(v), strings.Join(names, ", "))
}

func (s *Service) validateWords(f *faults) {
	word(f, "mode", s.Mode, []flow.Mode{flow.ModeProxy, flow.ModeSteer})
	word(f, "balance", s.Balance, Algorithms)
	word(f, "clientAddress", s.ClientAddress, ClientAddresses)
	word(f, "onBackendRemoved", s.OnBackendRemoved, RemovedPolicies)
	word(f, "offload.mode", s.Offload.Mode, OffloadModes)
	word(f, "offload.path", s.Offload.Path, OffloadPaths)
	word(f, "steer.choose", s.Steer.Choose, SteerChooses)
	word(f, "steer.whenAbsent", s.Steer.WhenAbsent, SteerAbsents)
	word(f, "sctp.mode", s.SCTP.Mode, SCTPModes)
	word(f, "sctp.multihoming", s.SCTP.Multihoming, Multihomings)
	if s.Affinity.By != NoAffinity {
		word(f, "affinity.by", s.Affinity.By, AffinityBys)
	}
	if s.Health.Probe != NoProbe {
		word(f, "health.probe", s.Health.Probe, Probes)
	}
}

func (s *Service) validateNumbers(f *faults) {
	positive := func(field string, d time.Duration) {
		if d <= 0 {
			f.add(field, "%s is not longer than 0", d)
		}
	}
	positive("timeouts.connect", s.Timeouts.Connect)
	positive("timeouts.idle", s.Timeouts.Idle)
	positive("timeouts.halfClosed", s.Timeouts.HalfClosed)
	positive("timeouts.udpIdle", s.Timeouts.UDPIdle)
	positive("timeouts.keepalive", s.Timeouts.KeepAlive)
	positive("timeouts.peerLost", s.Timeouts.PeerLost)
	if s.DrainTimeout < 0 {
		f.add("drainTimeout", "is negative")
	}
	if s.Affinity.Timeout < 0 {
		f.add("affinity.timeout", "is negative")
	}
	if s.Offload.AfterBytes < 0 {
		f.add("offload.afterBytes", "is negative")
	}
	if s.Offload.AfterAge < 0 {
		f.add("offload.afterAge", "is negative")
	}
	notNegative := func(field string, n int) {
		if n < 0 {
			f.add(field, "is negative: 0 is no limit")
		}
	}
	notNegative("limits.connections", s.Limits.Connections)
	notNegative("limits.perClient", s.Limits.PerClient)
	notNegative("limits.newPerSecond", s.Limits.NewPerSecond)
	notNegative("limits.udpSessions", s.Limits.UDPSessions)
}
