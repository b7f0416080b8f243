package relay

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/baton-lb/baton/lb/relay/capture"
	"github.com/baton-lb/baton/lb/store"
)

// vips are the addresses that a route of ours brings here. Relay.mu guards them.
//
// Routes come before the listeners that need them and go after the last one has
// closed: programFrontends only adds, programCleanup removes, and not before the last
// connection to the address has ended (see leaving.go).
type vips struct {
	taking    taking
	stateDir  string
	routes    *capture.Routes         // nil until one is needed
	ofService map[string][]netip.Addr // taken by a route
	users     map[netip.Addr]int      // services that have the address
	routed    map[netip.Addr]struct{} // as Ensure was told last
	ensured   bool                    // the routes are as Ensure was told; else it must be called
	warned    string                  // what was logged last
	left      bool                    // they are another process's
	leaving   leaving
}

func (v *vips) init(t taking, stateDir string) {
	v.taking, v.stateDir = t, stateDir
	v.ofService = make(map[string][]netip.Addr)
	v.users = make(map[netip.Addr]int)
	v.leaving.addrs = make(map[netip.Addr]struct{})
}

// programVIPsLocked makes the addresses of new frontends local to this host.
func (r *Relay) programVIPsLocked(c store.Change) []store.Failure {
	news := r.newFrontends(c)
	if len(news) == 0 {
		return nil
	}
	host, err := r.hostLocked()
	if err != nil {
		return failAll(news, fmt.Errorf("read this host's addresses: %w", err))
	}
	added, failures := r.vips.use(news, host)
	if len(added) == 0 {
		return failures
	}
	report, err := r.changeLocked(added, nil)
	if err != nil {
		return append(failures, failAll(news, err)...)
	}
	return append(failures, refusals(news, report)...)
}

// newFrontends lists the frontends of changed services that have neither a
// listener nor a route. In the usual round, where only backends have changed,
// there are none and the host need not be looked at.
func (r *Relay) newFrontends(c store.Change) (news []*store.Frontend) {
	for _, name := range c.Services {
		s, ok := c.To.Service(name)
		if !ok {
			continue
		}
		for _, fe := range s.FrontendSet {
			if fe.Address.Addr().IsUnspecified() {
				continue // there already, and often without a socket of its own
			}
			_, routed := r.vips.routed[fe.Address.Addr()]
			mine := slices.Contains(r.vips.ofService[name], fe.Address.Addr())
			open := r.listeners.open[fe.FrontendKey] != nil || r.listeners.udp[fe.FrontendKey] != nil
			if !(routed && mine) && !open {
				news = append(news, fe)
			}
		}
	}
	return news
}

// hostLocked is what this host has now.
func (r *Relay) hostLocked() (*capture.Host, error) {
	if r.vips.routes != nil {
		return r.vips.routes.Host()
	}
	return capture.ReadHost()
}

// use notes which services use which addresses, and lists those that need a route
// that is not there. What cannot be a VIP is the frontend's failure.
func (v *vips) use(news []*store.Frontend, host *capture.Host) (added []netip.Addr, failures []store.Failure) {
	for _, fe := range news {
		addr, name := fe.Address.Addr(), fe.Service.Name
		mode, err := v.taking.decide(addr, host)
		if err != nil {
			failures = append(failures, failure(fe, err))
			continue
		}
		if mode == capture.Bind {
			continue
		}
		if !slices.Contains(v.ofService[name], addr) {
			v.ofService[name] = append(v.ofService[name], addr)
			v.users[addr]++
			delete(v.leaving.addrs, addr)
		}
		if _, ok := v.routed[addr]; !ok {
			added = append(added, addr)
		}
	}
	return added, failures
}

// unuse forgets the addresses that changed services no longer have. Those that
// are left without any service are leaving.
func (v *vips) unuse(c store.Change) {
	for _, name := range c.Services {
		had := v.ofService[name]
		kept := slices.DeleteFunc(slices.Clone(had), func(a netip.Addr) bool { return !hasAddress(c.To, name, a) })
		for _, a := range had {
			if slices.Contains(kept, a) {
				continue
			}
			if v.users[a]--; v.users[a] == 0 {
				delete(v.users, a)
				v.leaving.addrs[a] = struct{}{}
			}
		}
		v.ofService[name] = kept
		if len(kept) == 0 {
			delete(v.ofService, name)
		}
	}
}

func hasAddress(s *store.Snapshot, service string, a netip.Addr) bool {
	svc, ok := s.Service(service)
	return ok && slices.ContainsFunc(svc.FrontendSet, func(fe *store.Frontend) bool { return fe.Address.Addr() == a })
}

func failure(fe *store.Frontend, err error) store.Failure {
	return store.Failure{Service: fe.Service.Name, Frontend: fe.FrontendKey, Err: err}
}

// all lists the addresses that are to have a route.
func (v *vips) all() []netip.Addr {
	all := make([]netip.Addr, 0, len(v.users)+len(v.leaving.addrs))
	all = slices.AppendSeq(all, maps.Keys(v.users))
	return slices.AppendSeq(all, maps.Keys(v.leaving.addrs))
}

// ensureLocked makes the routes those of the addresses in use.
func (r *Relay) ensureLocked() (capture.Report, error) {
	v := &r.vips
	if v.routes == nil {
		routes, err := capture.OpenRoutes(capture.RoutesParams{StateDir: v.stateDir})
		if err != nil {
			return capture.Report{}, err
		}
		v.routes = routes
		r.running.Go(func() { r.watchRoutes(routes) })
	}
	all := v.all()
	if err := r.guarding.protect(all); err != nil {
		return capture.Report{}, err
	}
	report, err := v.routes.Ensure(all)
	if err == nil {
		err = r.routedLocked(report)
	}
	v.ensured = err == nil
	return report, err
}

// changeLocked is ensureLocked when these addresses have come into use, and these are
// no longer: the usual round, of one service among many.
func (r *Relay) changeLocked(added, removed []netip.Addr) (capture.Report, error) {
	v := &r.vips
	if !v.ensured {
		return r.ensureLocked()
	}
	if err := r.guarding.protect(added); err != nil {
		return capture.Report{}, err
	}
	report, err := v.routes.Change(added, removed)
	switch {
	case err != nil:
	case report.Whole:
		err = r.routedLocked(report)
	default:
		err = r.someRoutedLocked(added, removed, report)
	}
	v.ensured = err == nil
	return report, err
}

// someRoutedLocked notes which of these addresses have a route now.
func (r *Relay) someRoutedLocked(added, removed []netip.Addr, report capture.Report) error {
	routed := maps.Clone(r.vips.routed)
	for _, a := range removed {
		delete(routed, a)
	}
	for _, a := range added {
		if report.Refused[a] == nil {
			routed[a] = struct{}{}
		}
	}
	r.setRoutedLocked(routed)
	return r.guarding.unprotect(slices.Concat(added, removed), routed)
}

// routedLocked notes what has a route after a look at all of them.
func (r *Relay) routedLocked(report capture.Report) error {
	all := r.vips.all()
	routed := make(map[netip.Addr]struct{}, len(all))
	for _, a := range all {
		if report.Refused[a] == nil {
			routed[a] = struct{}{}
		}
	}
	r.setRoutedLocked(routed)
	r.warnLocked(report, all)
	return r.guarding.unprotect(slices.Collect(maps.Keys(r.guarding.protected)), routed)
}

func (r *Relay) setRoutedLocked(routed map[netip.Addr]struct{}) {
	r.vips.routed = routed
	r.routed.Store(&routed)
}

// watchRoutes makes the routes right again when addresses of the host come and
// go: the kernel drops, or goes on using, what a route was told of them.
func (r *Relay) watchRoutes(routes *capture.Routes) {
	changed := make(chan struct{}, 1)
	r.running.Go(func() {
		for {
			select {
			case <-r.watching.Done():
				return
			case <-changed:
				r.renewRoutes()
			}
		}
	})
	err := routes.Watch(r.watching, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		r.log.Warn("changes of this host's addresses are not seen", "err", err)
	}
}

func (r *Relay) renewRoutes() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return
	}
	if _, err := r.ensureLocked(); err != nil {
		r.log.Warn("routes were not renewed after a change of addresses", "err", err)
	}
}

// warnUnguardedLocked says once what it means that clients are told apart only after
// they have connected.
func (r *Relay) warnUnguardedLocked(c store.Change) {
	g := &r.guarding
	if g.guard != nil || g.warned {
		return
	}
	for _, name := range c.Services {
		for _, fe := range proxied(c.To, name) {
			if len(fe.AllowSources) == 0 && len(fe.Inside) == 0 {
				continue
			}
			g.warned = true
			r.log.Warn("no guard: clients that may not use a frontend see its port open, and TCP connects before it is reset",
				"svc", name, "frontend", fe.FrontendKey.String(), "err", g.why)
			return
		}
	}
}

// warnLocked says in the log what a user of routes for VIPs must know, once.
func (r *Relay) warnLocked(report capture.Report, all []netip.Addr) {
	warnings := append(report.Warnings, r.exposure(all)...)
	text := strings.Join(warnings, "\n")
	if text == r.vips.warned {
		return
	}
	r.vips.warned = text
	for _, w := range warnings {
		r.log.Warn(w)
	}
}

// exposure says what the VIPs lead to besides frontends.
func (r *Relay) exposure(vips []netip.Addr) []string {
	if r.guarding.guard != nil || len(vips) == 0 {
		return nil
	}
	text := fmt.Sprintf("no guard: sockets of this host on the wildcard address can be reached at every VIP that is taken by anyip (%v)", r.guarding.why)
	exposed, err := capture.Exposed(vips)
	if err != nil || len(exposed) == 0 {
		return []string{text}
	}
	names := make([]string, 0, len(exposed))
	for _, e := range exposed {
		names = append(names, e.String())
	}
	return []string{text + ": now these: " + strings.Join(names, ", ") + "; bind them to addresses of their own, or filter their ports at the VIPs"}
}

// refusals turns what Ensure reports into failures of the frontends.
func refusals(news []*store.Frontend, report capture.Report) (failures []store.Failure) {
	for _, fe := range news {
		if err := report.Refused[fe.Address.Addr()]; err != nil {
			failures = append(failures, failure(fe, err))
		}
	}
	return failures
}

// failAll is a failure of every one of the frontends.
func failAll(news []*store.Frontend, err error) (failures []store.Failure) {
	for _, fe := range news {
		failures = append(failures, failure(fe, err))
	}
	return failures
}

// cleanVIPsLocked removes the routes that nothing uses any more, and, once all
// sources have delivered, those that an earlier process has left.
func (r *Relay) cleanVIPsLocked(c store.Change) {
	r.vips.unuse(c)
	if c.Synced && !r.vips.ensured {
		r.removeRoutesLocked(nil)
	}
	r.sweepLocked()
}

func (r *Relay) removeRoutesLocked(gone []netip.Addr) {
	if _, err := r.changeLocked(nil, gone); err != nil && !errors.Is(err, capture.ErrPermission) {
		r.log.Warn("routes of addresses that are no longer used stay behind", "err", err)
	}
}

// inherit keeps the routes of another process until nobody needs them.
func (v *vips) inherit(routed []netip.Addr) {
	for _, a := range routed {
		v.leaving.addrs[a] = struct{}{}
	}
}

// leave makes the routes another process's: close does not remove them.
func (v *vips) leave() {
	v.left, v.ensured, v.routed = true, false, nil
	v.leaving.stop()
}

func (v *vips) close() error {
	v.leaving.stop()
	if v.routes == nil {
		return nil
	}
	routes := v.routes
	v.routes = nil
	if v.left {
		return routes.Detach()
	}
	return routes.Close()
}
