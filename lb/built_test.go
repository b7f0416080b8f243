package lb

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
)

// What the model knows and no data path does is refused by name.
func TestNotBuilt(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Service)
		want   string
	}{
		{"sctp", func(s *Service) { s.Frontends[1].Proto = flow.SCTP }, "frontends[1]: an sctp frontend"},
		{"multihomed backend", func(s *Service) { s.Backends[0].More = []netip.Addr{netip.MustParseAddr("10.9.0.1")} }, "backends[0].addresses: a backend with several addresses"},
		{"offload path", func(s *Service) { s.Offload.Path = OffloadPathFlowtable }, "offload.path: offload path flowtable"},
		{"sctp kernel", func(s *Service) { s.SCTP.Mode = SCTPKernel }, "sctp.mode: sctp mode kernel"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := valid()
			c.change(s)
			faults, notBuilt := faultsOf(t, s)
			if len(faults) > 0 || len(notBuilt) != 1 || notBuilt[0] != c.want+" is not built yet in this version" {
				t.Errorf("faults %q, not built %q; want %q", faults, notBuilt, c.want)
			}
		})
	}
}

// It can be told from a fault, and read like one.
func TestNotBuiltError(t *testing.T) {
	s := valid()
	s.Offload.Path = OffloadPathFlowtable
	err := s.Validate()
	nb, ok := errors.AsType[*NotBuiltError](err)
	if !ok || nb.Field != "offload.path" || !errors.Is(err, ErrNotBuilt) {
		t.Errorf("%v", err)
	}
	if fe, ok := errors.AsType[*FieldError](err); !ok || fe.Field != "offload.path" || !strings.Contains(fe.Problem, "not built yet") {
		t.Errorf("%+v", fe)
	}
}
