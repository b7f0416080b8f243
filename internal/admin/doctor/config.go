package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/capture"
)

// Config is what a configuration asks of a host.
type Config struct {
	Services        []lb.Service
	Capture         capture.Mode
	HTTP            string       // of the admin API; "" = off
	SourceAddresses []netip.Addr // from which backends are connected to; empty = the kernel's choice
}

// Frontend is how one frontend would be captured.
type Frontend struct {
	Service  string   `json:"service"`
	Frontend string   `json:"frontend"`
	Capture  string   `json:"capture,omitempty"` // bind | sklookup | anyip
	Why      string   `json:"why,omitempty"`
	Problems []string `json:"problems,omitempty"`
}

// examine fills in what the configuration adds to a report.
func (c *Config) examine(h *host, r *Report) {
	for _, w := range Static(*c) {
		r.Warnings = append(r.Warnings, w.about()+w.String())
	}
	ground, err := capture.ReadHost()
	if err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("captures cannot be foretold: %v", err))
		return
	}
	e := examination{Config: c, host: h, ground: ground, busy: h.held || h.o.Serving}
	for i := range c.Services {
		for _, fe := range c.Services[i].Frontends {
			f := e.frontend(c.Services[i].Name, fe.FrontendKey)
			r.Frontends = append(r.Frontends, f)
			for _, p := range f.Problems {
				r.Problems = append(r.Problems, fmt.Sprintf("service %s: %s: %s", f.Service, f.Frontend, p))
			}
		}
	}
	r.Problems = append(r.Problems, e.noGuard()...)
	r.Problems = append(r.Problems, e.offload(r.Paths)...)
	r.Problems = append(r.Problems, e.sources()...)
	r.Problems = append(r.Problems, e.http()...)
	r.Warnings = append(r.Warnings, e.exposed()...)
	r.Warnings = append(r.Warnings, e.masked()...)
}

// examination is one configuration on one host.
type examination struct {
	*Config
	host   *host
	ground *capture.Host
	busy   bool         // an instance runs: whether ports are free cannot be said
	routed []netip.Addr // VIPs that are local by a route
}

func (e *examination) frontend(service string, k lb.FrontendKey) Frontend {
	f := Frontend{Service: service, Frontend: k.String()}
	a := k.Address.Addr()
	mode, err := e.decide(a)
	if err != nil {
		f.Problems = append(f.Problems, err.Error())
		return f
	}
	f.Capture, f.Why = mode.String(), e.why(mode, a)
	add := func(format string, args ...any) { f.Problems = append(f.Problems, fmt.Sprintf(format, args...)) }
	if a.Is6() && probeIPv6(e.host).Answer == Absent {
		add("IPv6 is not available on this host")
	}
	// Through a shared socket, nothing is bound at the frontend.
	shared := mode == capture.SKLookup && k.Proto == flow.TCP
	if !shared && !e.host.mayBind(k.Address.Port()) {
		add("port %d needs CAP_NET_BIND_SERVICE", k.Address.Port())
	}
	_, local := e.ground.Local(a)
	switch {
	case mode != capture.Bind:
		e.routed = append(e.routed, a)
		if !local && !e.host.has(unix.CAP_NET_ADMIN) {
			add("a route for %s needs CAP_NET_ADMIN; or configure the address on the host", a)
		}
	case !local && !a.IsUnspecified() && !a.IsLoopback() && !e.host.nonlocalBind(a.Is6()):
		add("%s is not configured on this host: configure it, or use capture: auto", a)
	}
	if len(f.Problems) == 0 && !e.busy && !shared && (local || a.IsUnspecified() || a.IsLoopback()) {
		if err := tryBind(k.Address); errors.Is(err, errPortTaken) {
			add("port %d is taken: %v", k.Address.Port(), err)
		}
	}
	return f
}

// decide is capture.Decide; a wildcard address is bound as it is.
func (e *examination) decide(a netip.Addr) (capture.Mode, error) {
	if a.IsUnspecified() {
		return capture.Bind, nil
	}
	return capture.Decide(e.Capture, a, e.ground, e.host.guarded())
}

func (e *examination) why(m capture.Mode, a netip.Addr) string {
	by, local := e.ground.Local(a)
	switch {
	case a.IsUnspecified():
		return "every address of this host"
	case a.IsLoopback():
		return "loopback address"
	case m != capture.Bind && local:
		return "local already: " + by
	case m != capture.Bind:
		return "not configured on this host: a local route makes it so"
	case local:
		return by
	}
	return "capture: bind asks for it"
}

// noGuard finds that sklookup was asked for and cannot be had.
func (e *examination) noGuard() []string {
	if e.Capture != capture.SKLookup || len(e.routed) == 0 || e.host.guarded() {
		return nil
	}
	return []string{fmt.Sprintf("capture: sklookup needs the guard: %v", e.host.guard())}
}

// sources finds source addresses that are not this host's.
func (e *examination) sources() (problems []string) {
	for _, a := range e.SourceAddresses {
		if _, local := e.ground.Local(a); !local && !a.IsLoopback() && !e.host.nonlocalBind(a.Is6()) {
			problems = append(problems, fmt.Sprintf("source.addresses: %s is not configured on this host", a))
		}
	}
	return problems
}

// http looks whether the address of metrics and health can be had.
func (e *examination) http() (problems []string) {
	host, port, err := net.SplitHostPort(e.HTTP)
	if e.HTTP == "" || err != nil {
		return nil
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return nil
	}
	if !e.host.mayBind(uint16(number)) {
		problems = append(problems, fmt.Sprintf("admin.http: port %d needs CAP_NET_BIND_SERVICE", number))
	}
	a, err := netip.ParseAddr(cmp.Or(host, "0.0.0.0"))
	if err == nil && !e.busy && errors.Is(tryBind(netip.AddrPortFrom(a, uint16(number))), errPortTaken) {
		problems = append(problems, fmt.Sprintf("admin.http: %s is taken by another process", e.HTTP))
	}
	return problems
}

// exposed says what else of this host the VIPs taken by anyip lead to.
func (e *examination) exposed() []string {
	if len(e.routed) == 0 || e.host.guarded() {
		return nil
	}
	found, err := capture.Exposed(e.routed)
	if err != nil {
		return []string{fmt.Sprintf("what anyip exposes cannot be said: %v", err)}
	}
	if len(found) == 0 {
		return nil
	}
	var text []string
	for _, x := range found {
		text = append(text, x.String())
	}
	slices.Sort(text)
	return []string{fmt.Sprintf("no guard: %s can also be reached at every other port that is open at all addresses of this host: %s",
		vipList(e.routed), strings.Join(text, ", "))}
}

// vipList names a few addresses.
func vipList(vips []netip.Addr) string {
	vips = slices.Clone(vips)
	slices.SortFunc(vips, netip.Addr.Compare)
	vips = slices.Compact(vips)
	if len(vips) > 3 {
		return fmt.Sprintf("%s and %d other VIPs", vips[0], len(vips)-1)
	}
	text := make([]string, len(vips))
	for i, a := range vips {
		text[i] = a.String()
	}
	return strings.Join(text, ", ")
}
