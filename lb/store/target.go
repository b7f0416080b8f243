package store

import (
	"fmt"
	"net/netip"
	"strings"
)

// Target is what `baton drain` names: a service, one backend of a service, or
// a backend of whatever service.
type Target struct {
	Service string         // "" = any
	Backend netip.AddrPort // zero = all of the service
}

// ParseTarget reads SERVICE, SERVICE/IP:PORT or IP:PORT. The name of a service
// may itself have a "/" in it.
func ParseTarget(s string) (Target, error) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return Target{Backend: unmap(ap)}, nil
	}
	if i := strings.LastIndexByte(s, '/'); i > 0 {
		if ap, err := netip.ParseAddrPort(s[i+1:]); err == nil {
			return Target{Service: s[:i], Backend: unmap(ap)}, nil
		}
	}
	if s == "" || strings.HasPrefix(s, "/") || strings.HasSuffix(s, "/") {
		return Target{}, fmt.Errorf("target %q: want SERVICE, SERVICE/IP:PORT or IP:PORT", s)
	}
	return Target{Service: s}, nil
}

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// String writes what ParseTarget reads.
func (t Target) String() string {
	switch {
	case !t.Backend.IsValid():
		return t.Service
	case t.Service == "":
		return t.Backend.String()
	}
	return t.Service + "/" + t.Backend.String()
}

// MarshalText is String.
func (t Target) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is ParseTarget.
func (t *Target) UnmarshalText(b []byte) (err error) {
	*t, err = ParseTarget(string(b))
	return err
}
