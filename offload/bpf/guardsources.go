package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
)

// Sources tells the clients of a frontend apart. The zero value does not.
type Sources struct {
	Allow  []netip.Prefix // clients that are heard at all; empty = all
	Inside []netip.Prefix // clients that get Rule.Inside
}

func (s Sources) none() bool { return len(s.Allow) == 0 && len(s.Inside) == 0 }

// who is what is said of all clients in a prefix. No prefix of the set may be within it.
func (s Sources) who(p netip.Prefix) (who guardWho) {
	if len(s.Allow) == 0 || within(p, s.Allow) {
		who |= guardWhoWHO_ALLOWED
	}
	if within(p, s.Inside) {
		who |= guardWhoWHO_INSIDE
	}
	return who
}

func within(p netip.Prefix, any []netip.Prefix) bool {
	return slices.ContainsFunc(any, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) })
}

// entries says what the longest match means in every prefix where something changes. Both families have their own
// beginning: in 16 bytes, ::/0 would hold IPv4 too.
func (s Sources) entries(set uint32) map[guardSource]guardWho {
	all := slices.Concat(s.Allow, s.Inside, []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)})
	entries := make(map[guardSource]guardWho, len(all))
	for _, p := range all {
		entries[sourceKey(set, p.Masked())] = s.who(p)
	}
	return entries
}

// sourceKey is the prefix of a set: 4 bytes of its number, then the address.
func sourceKey(set uint32, p netip.Prefix) guardSource {
	bits := 32 + p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	return guardSource{Prefix: uint32(bits), Set: set, Address: addressKey(p.Addr())}
}

// name tells sets apart by what is in them.
func (s Sources) name() string {
	var b []byte
	for _, p := range s.Allow {
		b = append(p.AppendTo(b), ' ')
	}
	b = append(b, '|')
	for _, p := range s.Inside {
		b = append(p.AppendTo(b), ' ')
	}
	return string(b)
}

// sourceSets are the sets in guard_sources. Frontends that tell clients apart in the same way share one, which never
// changes: it is there before the first of them, and goes after the last. Guard.mu guards it.
type sourceSets struct {
	byName map[string]*sourceSet
	of     map[guardFrontend]*sourceSet
	last   uint32 // number that was given
}

type sourceSet struct {
	number  uint32
	name    string
	entries map[guardSource]guardWho
	users   int
}

func newSourceSets() sourceSets {
	return sourceSets{byName: make(map[string]*sourceSet), of: make(map[guardFrontend]*sourceSet)}
}

// get finds a set, or makes it; nil for no sources.
func (s *sourceSets) get(m *ebpf.Map, from Sources) (*sourceSet, error) {
	if from.none() {
		return nil, nil
	}
	name := from.name()
	if set := s.byName[name]; set != nil {
		return set, nil
	}
	s.last++
	set := &sourceSet{number: s.last, name: name, entries: from.entries(s.last)}
	for k, who := range set.entries {
		if err := m.Put(k, who); err != nil {
			return nil, errors.Join(fmt.Errorf("add sources: %w", err), set.remove(m))
		}
	}
	s.byName[name] = set
	return set, nil
}

// use notes which set a frontend has, nil for none, and removes the one that it had if nobody has that any more.
func (s *sourceSets) use(m *ebpf.Map, k guardFrontend, set *sourceSet) error {
	had := s.of[k]
	if had == set {
		return nil
	}
	delete(s.of, k)
	if set != nil {
		s.of[k] = set
		set.users++
	}
	if had == nil {
		return nil
	}
	if had.users--; had.users > 0 {
		return nil
	}
	delete(s.byName, had.name)
	return had.remove(m)
}

func (s *sourceSet) remove(m *ebpf.Map) error {
	for source := range s.entries {
		if err := forget(m, source); err != nil {
			return fmt.Errorf("remove sources: %w", err)
		}
	}
	return nil
}
