package admin

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/baton-lb/baton/internal/flow"
)

// FilterSpec is a filter as a user writes it, every word as it was typed. Words
// of one kind are alternatives, kinds are ANDed: --service a --service b
// --protocol tcp is every TCP flow of a or b. The zero value selects all.
type FilterSpec struct {
	Service  []string // exact names
	Client   []string // IP, CIDR, either with :PORT
	Backend  []string // as Client
	Frontend []string // as Client, perhaps behind "tcp://"
	Protocol []string // tcp, udp, sctp
	Path     []string // flow.Paths
	State    []string // flow.States
}

// fields lists the spec by the name of its flag and query parameter.
func (s *FilterSpec) fields() map[string]*[]string {
	return map[string]*[]string{
		"service": &s.Service, "client": &s.Client, "backend": &s.Backend, "frontend": &s.Frontend,
		"protocol": &s.Protocol, "path": &s.Path, "state": &s.State,
	}
}

// FilterNames lists the kinds of filters, sorted: flags of the command line and
// query parameters of the API.
func FilterNames() []string { return slices.Sorted(maps.Keys((&FilterSpec{}).fields())) }

// Field is where the words of one kind go, nil for a kind that does not exist.
func (s *FilterSpec) Field(name string) *[]string { return s.fields()[name] }

// Values writes the spec as query parameters.
func (s *FilterSpec) Values() url.Values {
	v := make(url.Values)
	for name, words := range s.fields() {
		if len(*words) > 0 {
			v[name] = *words
		}
	}
	return v
}

// FilterSpecFrom reads what Values wrote. Other parameters are left alone.
func FilterSpecFrom(v url.Values) FilterSpec {
	var s FilterSpec
	for name, words := range s.fields() {
		*words = v[name]
	}
	return s
}

// Filter selects flows. The zero value selects all.
type Filter struct {
	services  []string
	clients   []endpoint
	backends  []endpoint
	frontends []endpoint
	protocols []flow.Proto
	paths     []flow.PathName
	states    []flow.State
}

// Parse checks every word of the spec. The error names the flag.
func (s *FilterSpec) Parse() (f Filter, err error) {
	if slices.Contains(s.Service, "") {
		return Filter{}, fmt.Errorf("--service: is empty")
	}
	f.services = s.Service
	if f.clients, err = parseAll("client", s.Client, parseEndpoint); err != nil {
		return Filter{}, err
	}
	if f.backends, err = parseAll("backend", s.Backend, parseEndpoint); err != nil {
		return Filter{}, err
	}
	if f.frontends, err = parseAll("frontend", s.Frontend, parseFrontend); err != nil {
		return Filter{}, err
	}
	if f.protocols, err = parseAll("protocol", s.Protocol, flow.ParseProto); err != nil {
		return Filter{}, err
	}
	if f.paths, err = parseAll("path", s.Path, oneOf(flow.Paths)); err != nil {
		return Filter{}, err
	}
	f.states, err = parseAll("state", s.State, oneOf(flow.States))
	return f, err
}

func parseAll[T any](name string, words []string, parse func(string) (T, error)) ([]T, error) {
	var all []T
	for _, w := range words {
		v, err := parse(w)
		if err != nil {
			return nil, fmt.Errorf("--%s %q: %w", name, w, err)
		}
		all = append(all, v)
	}
	return all, nil
}

// oneOf parses a word of a closed list.
func oneOf[T ~string](known []T) func(string) (T, error) {
	return func(s string) (T, error) {
		if slices.Contains(known, T(s)) {
			return T(s), nil
		}
		names := make([]string, len(known))
		for i, k := range known {
			names[i] = string(k)
		}
		return "", fmt.Errorf("use %s", strings.Join(names, ", "))
	}
}

// Match reports whether the filter selects the flow.
func (f *Filter) Match(v *flow.View) bool {
	return f.MatchService(v.Service) &&
		has(f.protocols, v.Protocol) && has(f.paths, v.Path) && has(f.states, v.State) &&
		inside(f.clients, v.Client) && f.MatchBackend(v.Backend) && f.MatchFrontend(v.Protocol, v.Frontend)
}

// MatchService reports whether the filter selects services of this name.
func (f *Filter) MatchService(name string) bool { return has(f.services, name) }

// MatchBackend reports whether the filter selects a backend at this address.
func (f *Filter) MatchBackend(a netip.AddrPort) bool { return inside(f.backends, a) }

// MatchFrontend reports whether --frontend selects this frontend.
func (f *Filter) MatchFrontend(p flow.Proto, a netip.AddrPort) bool {
	return len(f.frontends) == 0 || slices.ContainsFunc(f.frontends, func(e endpoint) bool {
		return (e.proto == 0 || e.proto == p) && e.matches(a)
	})
}

// MatchProtocol reports whether --protocol selects p.
func (f *Filter) MatchProtocol(p flow.Proto) bool { return has(f.protocols, p) }

// WantsEnded reports whether --state asks for ended flows.
func (f *Filter) WantsEnded() bool { return slices.Contains(f.states, flow.Ended) }

// WantsLive reports whether --state lets a flow pass that has not ended.
func (f *Filter) WantsLive() bool {
	return len(f.states) == 0 || slices.ContainsFunc(f.states, func(s flow.State) bool { return s != flow.Ended })
}

// has reports whether v is wanted: listed, or nothing is.
func has[T comparable](wanted []T, v T) bool { return len(wanted) == 0 || slices.Contains(wanted, v) }

func inside(wanted []endpoint, a netip.AddrPort) bool {
	return len(wanted) == 0 || slices.ContainsFunc(wanted, func(e endpoint) bool { return e.matches(a) })
}
