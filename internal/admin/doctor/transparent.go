package doctor

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/baton-lb/baton/lb"
)

const maskedTodo = "nothing to do while no service asks for it: backends see addresses of this host; clientAddress proxy-v2 tells them the client's"

// tryTransparent asks once, elsewhere.
func tryTransparent(try func() Finding) func() Finding {
	return sync.OnceValue(func() (f Finding) {
		if try == nil {
			return absent(maskedTodo, "not part of this program")
		}
		err := elsewhere(func() error {
			f = try()
			return nil
		})
		if err != nil {
			return inconclusive(err)
		}
		if f.Answer == Absent {
			f.Todo = cmp.Or(f.Todo, maskedTodo)
		}
		return f
	})
}

// probeTransparent says whether backends can see clients' addresses.
func probeTransparent(h *host) Finding { return h.transparent() }

// masked finds services whose clients' addresses would not be kept, though they ask for
// it. They work all the same.
func (e *examination) masked() (warnings []string) {
	for i := range e.Services {
		s := &e.Services[i]
		if !asksForClients(s) {
			continue
		}
		if f := e.host.transparent(); f.Answer == Absent {
			warnings = append(warnings, fmt.Sprintf("service %s: clientAddress transparent: its clients are masked: %s", s.Name, f.Detail))
		}
	}
	return warnings
}

func asksForClients(s *lb.Service) bool {
	for _, fe := range s.Frontends {
		if cmp.Or(fe.ClientAddress, s.ClientAddress) == lb.Transparent {
			return true
		}
	}
	return false
}
