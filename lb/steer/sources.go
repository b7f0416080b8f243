package steer

import (
	"net/netip"
	"slices"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/steer/program"
)

// rules are what a service and a frontend say of clients.
type rules struct {
	deny, allow []netip.Prefix // of the service
	only        []netip.Prefix // of the frontend
	inside      []netip.Prefix

	keeps bool           // clients' addresses are to be kept:
	keep  []netip.Prefix // of these, or of all if it is empty
}

func rulesOf(s *lb.Service, f *lb.Frontend, keeps bool) rules {
	return rules{deny: s.Deny, allow: s.Allow, only: f.AllowSources, inside: f.Inside, keeps: keeps, keep: f.KeepSources}
}

// of is the verdict about clients in a prefix that is no larger than any of the rules', if it meets one.
func (r *rules) of(in func([]netip.Prefix) bool) program.Verdict {
	switch {
	case in(r.deny):
		return program.SourceRefused
	case len(r.allow) > 0 && !in(r.allow):
		return program.SourceRefused
	case len(r.only) > 0 && !in(r.only):
		return program.SourceDropped
	case in(r.inside):
		return program.SourceInside
	}
	return program.SourceOutside
}

// kept reports whether the address of such clients is to be kept.
func (r *rules) kept(in func([]netip.Prefix) bool) bool {
	return r.keeps && (len(r.keep) == 0 || in(r.keep))
}

// flatten makes of the rules a list in which the longest prefix counts, and what everybody else is. In
// the rules a prefix of one list says nothing of another list's: each prefix gets what all rules together say of it.
func (r *rules) flatten() (list []program.Source, others program.Source) {
	all := slices.Concat(r.deny, r.allow, r.only, r.inside)
	if r.keeps {
		all = append(all, r.keep...)
	}
	for i := range all {
		all[i] = all[i].Masked()
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	for _, p := range slices.Compact(all) {
		in := func(of []netip.Prefix) bool { return covers(of, p) }
		list = append(list, program.Source{Prefix: p, Verdict: r.of(in), Keep: r.kept(in)})
	}
	none := func([]netip.Prefix) bool { return false }
	return list, program.Source{Verdict: r.of(none), Keep: r.kept(none)}
}

// covers reports whether one of the prefixes has all of p in it.
func covers(all []netip.Prefix, p netip.Prefix) bool {
	return slices.ContainsFunc(all, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) })
}
