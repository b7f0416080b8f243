package lb

import "net/netip"

// Subset selects backends by where they are. The zero value selects all.
type Subset string

// The subsets.
const (
	AllBackends   Subset = ""
	LocalBackends Subset = "local" // on this node
	NearBackends  Subset = "near"  // not Far
)

// Subsets are those with a name.
var Subsets = []Subset{LocalBackends, NearBackends}

// Has reports whether the subset contains b.
func (s Subset) Has(b *Backend) bool {
	switch s {
	case LocalBackends:
		return b.Local
	case NearBackends:
		return !b.Far
	}
	return true
}

// Family is a family of addresses. The zero value is any.
type Family uint8

// The families.
const (
	AnyFamily Family = iota
	IPv4
	IPv6
)

// FamilyOf is the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	}
	return "any"
}

// Selection says which of a service's backends some clients may use. Frontends
// with equal ones can share what chooses among them.
type Selection struct {
	Subset Subset
	Family Family
}

// Has reports whether b is among them.
func (s Selection) Has(b *Backend) bool {
	return s.Subset.Has(b) && (s.Family == AnyFamily || s.Family == FamilyOf(b.Address.Addr()))
}

// IsAll reports whether every backend is.
func (s Selection) IsAll() bool { return s == Selection{} }
