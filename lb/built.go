package lb

import (
	"fmt"

	"github.com/baton-lb/baton/internal/flow"
)

// notBuilt refuses by name what the model knows and no data path does yet: a
// user must never believe that a key he wrote is in force when it is not.
func (f *faults) notBuilt(field, what string) {
	*f = append(*f, &NotBuiltError{FieldError{field, what + " is not built yet in this version"}})
}

// validateBuilt is the one list of what is not built yet.
func (s *Service) validateBuilt(f *faults) {
	for i := range s.Frontends {
		if s.Frontends[i].Proto == flow.SCTP {
			f.notBuilt(fmt.Sprintf("frontends[%d]", i), "an sctp frontend")
		}
	}
	for i := range s.Backends {
		if len(s.Backends[i].More) > 0 {
			f.notBuilt(fmt.Sprintf("backends[%d].addresses", i), "a backend with several addresses")
		}
	}
	if s.Health.Probe == ProbeSCTP {
		f.notBuilt("health.probe", "an sctp probe")
	}
	if s.Offload.Path == OffloadPathFlowtable {
		f.notBuilt("offload.path", "offload path "+string(s.Offload.Path))
	}
	if s.SCTP.Mode == SCTPKernel {
		f.notBuilt("sctp.mode", "sctp mode kernel")
	}
}
