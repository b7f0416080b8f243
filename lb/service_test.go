package lb

import (
	"testing"
	"time"
)

// The defaults are part of the contract.
func TestDefault(t *testing.T) {
	s := Default("web")
	for _, c := range []struct {
		field     string
		got, want any
	}{
		{"name", s.Name, "web"},
		{"mode", string(s.Mode), "proxy"},
		{"balance", s.Balance, RoundRobin},
		{"affinity", s.Affinity, Affinity{}},
		{"health", s.Health, HealthCheck{}},
		{"clientAddress", s.ClientAddress, Masked},
		{"onBackendRemoved", s.OnBackendRemoved, Keep},
		{"drainTimeout", s.DrainTimeout, 30 * time.Second},
		{"timeouts", s.Timeouts, Timeouts{
			Connect: 2 * time.Second, Idle: time.Hour, HalfClosed: time.Minute, UDPIdle: time.Minute,
			KeepAlive: time.Minute, PeerLost: 2 * time.Minute,
		}},
		{"offload", s.Offload, Offload{OffloadAuto, OffloadPathAuto, 64 << 10, time.Second}},
		{"limits", s.Limits, Limits{}},
		{"steer", s.Steer, Steer{ChooseAuto, LastKnown}},
		{"sctp", s.SCTP, SCTP{SCTPRelay, Strip}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", c.field, c.got, c.want)
		}
	}
	if len(s.Frontends)+len(s.Backends)+len(s.AcceptProxy)+len(s.Allow)+len(s.Deny) != 0 {
		t.Error("a list is not empty")
	}
}

func TestDefaultHealth(t *testing.T) {
	for _, p := range Probes {
		h := DefaultHealth(p)
		if h.Probe != p || h.Interval != 2*time.Second || h.Timeout != time.Second || h.Rise != 2 || h.Fall != 3 ||
			h.Path != "/" || h.Status != "200-399" || h.Port != 0 || h.Host+h.Send+h.Expect != "" {
			t.Errorf("%+v", h)
		}
	}
}
