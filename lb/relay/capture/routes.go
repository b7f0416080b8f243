package capture

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/dump"
)

const (
	// RouteProtocol marks the routes of ours ("ip route show table local proto 66"). It is assigned to nobody in the
	// kernel's rtnetlink.h nor in iproute2's rt_protos.
	RouteProtocol netlink.RouteProtocol = 66

	// RouteMetric is the metric of the routes of ours. The kernel's own for a configured address have 0, so that an
	// address that is configured later comes first, and replacing a route of ours cannot hit one of the kernel's.
	RouteMetric = 1024

	// fewRoutes is how many are changed one by one.
	fewRoutes = 32
)

// RoutesParams says how OpenRoutes works. The zero value works.
type RoutesParams struct {
	// StateDir is where the values of changed sysctls are kept across a crash. "": in memory only, so that after a crash
	// Cleanup cannot restore them.
	StateDir string
}

// Routes owns the AnyIP routes of one network namespace, those left by a process before included.
//
//	OpenRoutes --Ensure--> routes as wanted --Ensure--> ... --Close--> none
//	                                                          Detach--> left in place for the next process
type Routes struct {
	// Immutable after OpenRoutes.
	ns       *namespace
	kernel   kernel
	release  func() // closes kernel
	loopback int    // device index
	bulk     *bulk  // for many routes at once; nil = one by one

	// mu guards what follows, and the kernel's tables against two operations at once.
	mu     sync.Mutex
	arp    arpGuard
	view   view
	wanted map[netip.Addr]bool // VIPs, as Ensure and Change have been told
	closed bool
}

var errClosed = errors.New("routes are closed")

// Report says how it stands with each VIP after Ensure.
type Report struct {
	Routed   int // VIPs that have a route of ours
	Added    int
	Replaced int // routes with another source hint than before
	Removed  int

	// Whole: it is about every VIP. Else it is about those that were added, what is counted and the warnings too.
	Whole    bool
	Local    map[netip.Addr]string // VIPs that are local without us, and by what
	Refused  map[netip.Addr]error  // VIPs that got no route; see Host.Check, or the kernel's word
	Warnings []string              // what is less than promised, with what to do about it
}

// OpenRoutes takes over the routes of the calling thread's namespace. It changes nothing yet: what a process before has
// left is judged by the first Ensure.
func OpenRoutes(p RoutesParams) (_ *Routes, err error) {
	ns, err := currentNamespace()
	if err != nil {
		return nil, err
	}
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open rtnetlink: %w", err), ns.Close())
	}
	r, err := newRoutes(ns, nl, nl.Close, p)
	if err == nil {
		r.bulk = &bulk{ns: ns, loopback: r.loopback}
		r.view.open(ns)
	}
	return r, err
}

func newRoutes(ns *namespace, k kernel, release func(), p RoutesParams) (_ *Routes, err error) {
	r := &Routes{ns: ns, kernel: k, release: release}
	r.arp = arpGuard{sys: procSys{ns}, file: newStateFile(p.StateDir, ns)}
	if r.loopback, err = findLoopback(k); err != nil {
		release()
		return nil, errors.Join(err, ns.Close())
	}
	return r, nil
}

func findLoopback(k kernel) (index int, err error) {
	links, err := dump.Whole(k.LinkList)
	if err != nil {
		return 0, fmt.Errorf("list devices: %w", err)
	}
	for _, l := range links {
		if l.Attrs().Flags&net.FlagLoopback != 0 {
			return l.Attrs().Index, nil
		}
	}
	return 0, errors.New("no loopback device")
}

// Ensure makes the routes of ours those of vips: it adds what is missing, corrects source hints, and removes the rest,
// whoever of us made it. A VIP that is local without us gets no route, one that is not fit for it (Host.Check) or that
// the kernel refuses is reported; the others are served all the same. A route that is there and wanted stays, even if the
// address has meanwhile become something that Check would refuse. The error is about what concerns all VIPs.
//
// Replies to ARP are stopped before the first IPv4 route is made and allowed again after the last one is gone.
func (r *Routes) Ensure(vips []netip.Addr) (Report, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return Report{}, errClosed
	}
	r.wanted = setOf(vips)
	host, err := r.view.readAnew(r.kernel)
	if err != nil {
		return Report{}, err
	}
	return r.apply(host, makePlan(host, r.wanted))
}

// Change is Ensure for the VIPs of before, with some more and without some. It costs what these cost, as long as nobody
// else has changed what the namespace has; then, and now and then, it looks at everything. After an error Ensure must be
// called.
func (r *Routes) Change(add, remove []netip.Addr) (Report, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return Report{}, errClosed
	}
	if r.wanted == nil {
		r.wanted = make(map[netip.Addr]bool)
	}
	added, removed := setOf(add), setOf(remove)
	for vip := range removed {
		if !added[vip] {
			delete(r.wanted, vip)
		}
	}
	maps.Copy(r.wanted, added)
	host, anew, err := r.view.get(r.kernel)
	if err != nil {
		return Report{}, err
	}
	if anew || host.routed4 == 0 && slices.ContainsFunc(sortedKeys(added), netip.Addr.Is4) { // ARP is to be seen to
		return r.apply(host, makePlan(host, r.wanted))
	}
	gone := slices.DeleteFunc(sortedKeys(removed), func(vip netip.Addr) bool { return r.wanted[vip] })
	return r.apply(host, makeSmallPlan(host, r.wanted, sortedKeys(added), gone))
}

func setOf(vips []netip.Addr) map[netip.Addr]bool {
	set := make(map[netip.Addr]bool, len(vips))
	for _, vip := range vips {
		set[vip.Unmap()] = true
	}
	return set
}

// apply makes a plan true.
func (r *Routes) apply(host *Host, p *plan) (Report, error) {
	report := p.report
	if report.Whole && p.ipv4 {
		if err := r.arp.raise(); err != nil {
			report.Warnings = append(report.Warnings, fmt.Sprintf("this host answers ARP for the IPv4 VIPs (%v); "+
				"set net.ipv4.conf.all.arp_ignore=3 and net.ipv4.conf.all.arp_announce=2", err))
		}
		report.Warnings = append(report.Warnings, host.unanswered()...)
	}
	added := func(c change) {
		report.Added++
		report.Routed++
		host.route(c.vip, c.hint)
	}
	changes := p.changes
	if r.bulk != nil && len(changes) > fewRoutes {
		changes = r.bulk.add(changes, added)
	}
	for _, c := range changes {
		r.change(c, host, &report, added)
	}
	removed, err := r.removeAll(p.remove)
	report.Removed += len(removed)
	for _, vip := range removed {
		host.unroute(vip)
	}
	if host.routed4 == 0 && (report.Whole || len(removed) > 0) {
		_, restoreErr := r.arp.restore()
		err = errors.Join(err, restoreErr)
	}
	return report, err
}

// change makes or replaces one route.
func (r *Routes) change(c change, host *Host, report *Report, added func(change)) {
	if c.replace {
		if err := r.kernel.RouteReplace(r.route(c.vip, c.hint)); err != nil {
			report.Warnings = append(report.Warnings,
				fmt.Sprintf("the route for %s keeps an old source hint: %v", c.vip, explainRoute(err)))
			return
		}
		report.Replaced++
		host.route(c.vip, c.hint)
		return
	}
	add := r.kernel.RouteAdd
	if c.again {
		add = r.kernel.RouteReplace
	}
	if err := add(r.route(c.vip, c.hint)); err != nil {
		report.Refused[c.vip] = fmt.Errorf("add local route for %s: %w", c.vip, explainRoute(err))
		return
	}
	added(c)
}

// removeAll takes routes away. The error is about those that it could not.
func (r *Routes) removeAll(vips []netip.Addr) (removed []netip.Addr, err error) {
	if r.bulk != nil && len(vips) > fewRoutes {
		removed, vips = r.bulk.remove(vips)
	}
	for _, vip := range vips {
		if removeErr := r.remove(vip); removeErr != nil {
			err = errors.Join(err, removeErr)
			continue
		}
		removed = append(removed, vip)
	}
	return removed, err
}

// remove takes a route away; one that is gone already is fine.
func (r *Routes) remove(vip netip.Addr) error {
	err := r.kernel.RouteDel(r.route(vip, netip.Addr{}))
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove local route for %s: %w", vip, permission(err))
	}
	return nil
}

// route is the kernel's form of a route of ours. Protocol and metric are matched on removal too.
func (r *Routes) route(vip, hint netip.Addr) *netlink.Route {
	return &netlink.Route{
		LinkIndex: r.loopback,
		Dst:       &net.IPNet{IP: vip.AsSlice(), Mask: net.CIDRMask(vip.BitLen(), vip.BitLen())},
		Src:       hint.AsSlice(),
		Type:      unix.RTN_LOCAL,
		Table:     unix.RT_TABLE_LOCAL,
		Scope:     unix.RT_SCOPE_HOST,
		Protocol:  RouteProtocol,
		Priority:  RouteMetric,
	}
}

// explainRoute adds what to do to the kernel's refusal of a route.
func explainRoute(err error) error {
	switch {
	case errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("the loopback device is down (ip link set lo up): %w", err)
	case errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: %w", ErrNoFamily, err)
	}
	return permission(err)
}

// Close removes every route of ours and restores the sysctls. The error says what is left, for Cleanup to try again.
func (r *Routes) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	_, err := r.clear()
	return errors.Join(err, r.shut())
}

// Detach leaves routes and sysctls as they are, for the next process to adopt, and frees the descriptors.
func (r *Routes) Detach() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	return r.shut()
}

func (r *Routes) shut() error {
	r.closed = true
	r.view.close()
	r.release()
	return r.ns.Close()
}

// clear removes what is ours and says what that was. The sysctls stay as long as a route does.
func (r *Routes) clear() (did []string, err error) {
	host, err := readHost(r.kernel)
	if err != nil {
		return nil, err
	}
	removed, err := r.removeAll(sortedKeys(host.ours))
	for _, vip := range removed {
		did = append(did, fmt.Sprintf("route local %s", vip))
	}
	if err != nil {
		return did, err
	}
	restored, err := r.arp.restore()
	return append(did, restored...), err
}

func sortedKeys[V any](m map[netip.Addr]V) []netip.Addr {
	keys := make([]netip.Addr, 0, len(m))
	for a := range m {
		keys = append(keys, a)
	}
	slices.SortFunc(keys, netip.Addr.Compare)
	return keys
}
