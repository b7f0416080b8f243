package capture

import (
	"fmt"
	"net/netip"
)

// Mode is a way to take a VIP's packets. The zero value is Auto.
type Mode uint8

// The modes.
const (
	Auto     Mode = iota // bind if the address is configured, else sklookup where the guard is, else anyip
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

// Decide says how a VIP is taken on host h when the configuration asks for m: Bind, SKLookup or AnyIP. guarded says whether
// there is a guard (see package relay), which Auto needs for SKLookup. A loopback address is always Bind. For all but Bind,
// asked for or chosen, the VIP must be fit for a route: the error wraps ErrHostAddress, ErrGateway or ErrNotUnicast. Whether
// the address of a Bind is there is left to Listen.
//
// An address that is local by the route of somebody else is not configured; it gets no route of ours.
func Decide(m Mode, vip netip.Addr, h *Host, guarded bool) (Mode, error) {
	vip = vip.Unmap()
	if m == Bind || vip.IsLoopback() {
		return Bind, nil
	}
	if m == Auto {
		if _, ok := h.Configured(vip); ok {
			return Bind, nil
		}
		m = AnyIP
		if guarded {
			m = SKLookup
		}
	}
	return m, h.Check(vip)
}
