package transparent

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/dump"
)

const (
	// Mark is the one bit of packets' marks that is ours. Others keep theirs elsewhere: kube-proxy in 0xc000, the CNI
	// port map in 0x2000, Calico, Tailscale and Weave in the upper half.
	Mark = 1 << 12

	// Table is the routing table in which everything is local.
	Table = 66066

	// Protocol marks rules and routes as ours, as it does the routes of package capture.
	Protocol = 66

	// Priorities of the rules: behind the one for the table local, before all that others usually make.
	priorityOut   = 64
	priorityIn    = 65
	priorityAfter = 66

	actionNothing = 3 // FR_ACT_NOP
)

var families = []int{netlink.FAMILY_V4, netlink.FAMILY_V6}

// kernel is what is asked of rtnetlink. *netlink.Handle does it; tests put faults in between.
type kernel interface {
	LinkList() ([]netlink.Link, error)
	LinkByIndex(int) (netlink.Link, error)
	RuleList(family int) ([]netlink.Rule, error)
	RuleAdd(*netlink.Rule) error
	RuleDel(*netlink.Rule) error
	RouteListFiltered(family int, filter *netlink.Route, mask uint64) ([]netlink.Route, error)
	RouteReplace(*netlink.Route) error
	RouteDel(*netlink.Route) error
	RouteGet(net.IP) ([]netlink.Route, error)
}

var _ kernel = (*netlink.Handle)(nil)

// wantedRules are the rules of a family in the order in which to make them: nothing is delivered before the last, which
// then stands behind its exception. They are removed the other way round.
func wantedRules(family int) []*netlink.Rule {
	mask := uint32(Mark)
	rule := func(priority int) *netlink.Rule {
		r := netlink.NewRule()
		r.Family, r.Priority, r.Protocol = family, priority, Protocol
		return r
	}
	after, out, in := rule(priorityAfter), rule(priorityOut), rule(priorityIn)
	after.Type = actionNothing
	out.Mark, out.Mask, out.IifName, out.Goto = Mark, &mask, "lo", priorityAfter
	in.Mark, in.Mask, in.Table = Mark, &mask, Table
	return []*netlink.Rule{after, out, in}
}

// same reports whether a rule that is there is the wanted one. The kernel's list says nothing of actions.
func same(there, want *netlink.Rule) bool {
	return there.Protocol == want.Protocol && there.Priority == want.Priority && there.Mark == want.Mark &&
		(there.Mask == nil) == (want.Mask == nil) && (there.Mask == nil || *there.Mask == *want.Mask) &&
		there.IifName == want.IifName && max(0, there.Goto) == max(0, want.Goto) &&
		there.Table == want.Table && !there.Invert && there.Src == nil && there.Dst == nil
}

// isOurs tells the rules of this package, those of other versions of it included, from all others.
func isOurs(r *netlink.Rule) bool {
	return r.Protocol == Protocol && priorityOut <= r.Priority && r.Priority <= priorityAfter
}

// ensure makes rules and route of a family as they must be.
func ensure(k kernel, family, loopback int) error {
	there, err := k.RuleList(family)
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	wanted := wantedRules(family)
	for i := range there {
		r := &there[i]
		if isOurs(r) && !slices.ContainsFunc(wanted, func(w *netlink.Rule) bool { return same(r, w) }) {
			if err := removeRule(k, r); err != nil {
				return err
			}
		}
	}
	if err := k.RouteReplace(everything(family, loopback)); err != nil {
		return fmt.Errorf("add the local route: %w", err)
	}
	for _, w := range wanted {
		if slices.ContainsFunc(there, func(r netlink.Rule) bool { return same(&r, w) }) {
			continue
		}
		if err := k.RuleAdd(w); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add rule %d: %w", w.Priority, err)
		}
	}
	return nil
}

// everything is the route of the table.
func everything(family, loopback int) *netlink.Route {
	to := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	if family == netlink.FAMILY_V6 {
		to = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return &netlink.Route{
		Family: family, LinkIndex: loopback, Dst: to, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Table: Table, Protocol: Protocol,
	}
}

// remove takes rules and routes of a family away, whoever of us made them, and says which they were.
func remove(k kernel, family int) (did []string, err error) {
	there, err := k.RuleList(family)
	if noFamily(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	var errs []error
	for _, priority := range []int{priorityIn, priorityOut, priorityAfter} {
		for i := range there {
			r := &there[i]
			if !isOurs(r) || r.Priority != priority {
				continue
			}
			err := removeRule(k, r)
			if err == nil {
				did = append(did, fmt.Sprintf("rule %d (%s)", priority, familyName(family)))
			}
			errs = append(errs, err)
		}
	}
	routes, err := k.RouteListFiltered(family, &netlink.Route{Table: Table, Protocol: Protocol, Type: unix.RTN_LOCAL},
		netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TYPE)
	if err != nil {
		errs = append(errs, fmt.Errorf("list routes: %w", err))
	}
	for i := range routes {
		err := k.RouteDel(&routes[i])
		if err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("remove the local route: %w", err))
			continue
		}
		did = append(did, fmt.Sprintf("route local default table %d (%s)", Table, familyName(family)))
	}
	return did, errors.Join(errs...)
}

// removeRule removes one; one that is gone already is fine.
func removeRule(k kernel, r *netlink.Rule) error {
	if err := k.RuleDel(r); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove rule %d: %w", r.Priority, err)
	}
	return nil
}

func familyName(family int) string {
	if family == netlink.FAMILY_V6 {
		return "IPv6"
	}
	return "IPv4"
}

// noFamily says that the kernel does without a family.
func noFamily(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)
}

func loopback(k kernel) (index int, err error) {
	all, err := dump.Whole(k.LinkList)
	if err != nil {
		return 0, fmt.Errorf("list devices: %w", err)
	}
	for _, l := range all {
		if l.Attrs().Flags&net.FlagLoopback != 0 {
			return l.Attrs().Index, nil
		}
	}
	return 0, errors.New("no loopback device")
}
