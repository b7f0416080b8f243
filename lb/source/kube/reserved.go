package kube

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/baton-lb/baton/lb"
)

// apiService is the Service that pods reach the API server by.
var apiService = types.NamespacedName{Namespace: "default", Name: "kubernetes"}

// reserved are the addresses at which the API server itself is: whoever may write an
// external IP into a Service must not get what nodes and pods send there. It belongs
// to the goroutine that translates.
type reserved struct {
	named  []netip.Addr // by the client's configuration
	slices map[types.NamespacedName][]netip.Addr
}

// setSlice hears of every slice, and remembers those of the API server.
func (r *reserved) setSlice(k types.NamespacedName, s *Slice) {
	if s == nil || s.Service != apiService.String() {
		delete(r.slices, k)
		return
	}
	if r.slices == nil {
		r.slices = make(map[types.NamespacedName][]netip.Addr)
	}
	list := make([]netip.Addr, 0, len(s.Endpoints))
	for i := range s.Endpoints {
		list = append(list, s.Endpoints[i].address)
	}
	r.slices[k] = list
}

// has reports whether the API server is at an address. One of this host's own is
// left out: there no port is taken but the service's, and that only if it is free.
func (r *reserved) has(a netip.Addr) bool {
	at := slices.Contains(r.named, a)
	for _, list := range r.slices {
		at = at || slices.Contains(list, a)
	}
	return at && !a.IsLoopback() && !slices.Contains(hostAddresses(), a)
}

// strip takes frontends at such addresses out of the changes, and returns the faults
// by service. A service that has no other is deleted.
func (r *reserved) strip(c *Changes) map[string]Fault {
	var faults map[string]Fault
	kept := c.Upsert[:0]
	for _, svc := range c.Upsert {
		own := objectOf(svc.Name) == apiService
		var bad []string
		if !own {
			svc.Frontends, bad = r.without(svc.Frontends)
		}
		if len(bad) > 0 {
			if faults == nil {
				faults = make(map[string]Fault)
			}
			faults[svc.Name] = faultOf(svc.Name, &lb.FieldError{
				Field: "frontends", Problem: fmt.Sprintf("%s is where the API server itself is: not served there", strings.Join(bad, ", ")),
			})
		}
		if len(svc.Frontends) == 0 && len(bad) > 0 {
			c.Delete = append(c.Delete, svc.Name)
			continue
		}
		kept = append(kept, svc)
	}
	c.Upsert = kept
	return faults
}

func (r *reserved) without(all []lb.Frontend) (kept []lb.Frontend, bad []string) {
	if !slices.ContainsFunc(all, func(f lb.Frontend) bool { return r.has(f.Address.Addr()) }) {
		return all, nil
	}
	for _, f := range all {
		if r.has(f.Address.Addr()) {
			bad = append(bad, f.String())
			continue
		}
		kept = append(kept, f)
	}
	return kept, bad
}
