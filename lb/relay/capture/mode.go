package capture

import (
	"fmt"
	"net/netip"
)

// Mode is a way to take a VIP's packets. The zero value is Auto.
type Mode uint8

// The modes.
const (
	Auto     Mode = iota // bind if the address is configured, else anyip
	SKLookup             // anyip, with few sockets shared by all frontends
	AnyIP                // a local route for the VIP
	Bind                 // the address is configured on the host
)

var modeNames = [...]string{Auto: "auto", SKLookup: "sklookup", AnyIP: "anyip", Bind: "bind"}

// String gives the name that configurations use.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// ParseMode reads a mode's name; "" is Auto.
func ParseMode(s string) (Mode, error) {
	if s == "" {
		return Auto, nil
	}
	for m, name := range modeNames {
		if s == name {
			return Mode(m), nil
		}
	}
	return Auto, fmt.Errorf("capture mode %q: want auto, sklookup, anyip or bind", s)
}

// Decide says how a VIP is taken on host h when the configuration asks for m: Bind or AnyIP. A loopback address is always
// Bind. For AnyIP, asked for or chosen, the VIP must be fit for it: the error wraps ErrHostAddress, ErrGateway or
// ErrNotUnicast. The error for SKLookup wraps ErrNotBuilt. Whether the address of a Bind is there is left to Listen.
//
// An address that is local by the route of somebody else is not configured; it is AnyIP, without a route of ours.
func Decide(m Mode, vip netip.Addr, h *Host) (Mode, error) {
	vip = vip.Unmap()
	if m == SKLookup {
		return m, fmt.Errorf("capture: sklookup: %w", ErrNotBuilt)
	}
	if m == Bind || vip.IsLoopback() {
		return Bind, nil
	}
	if m == Auto {
		if _, ok := h.Configured(vip); ok {
			return Bind, nil
		}
	}
	return AnyIP, h.Check(vip)
}
