package capture

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Exposure is a socket of the host that can be reached at every VIP taken by anyip: it is bound to no address, and to the
// kernel the VIP is just one more of the host's.
type Exposure struct {
	Proto   string         // tcp | udp
	Addr    netip.AddrPort // as bound: 0.0.0.0:22, [::]:22
	PID     int            // 0 if we may not see it
	Process string         // "" then
}

// String gives "tcp 0.0.0.0:22 by sshd (pid 812)".
func (e Exposure) String() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s %s", e.Proto, e.Addr)
	}
	return fmt.Sprintf("%s %s by %s", e.Proto, e.Addr, process{e.PID, e.Process})
}

// Exposed lists what the calling thread's namespace exposes at the given VIPs, our own sockets included. Listening sockets
// at [::] count for IPv4 VIPs too: whether they take IPv6 only is not to be seen.
func Exposed(vips []netip.Addr) ([]Exposure, error) {
	if len(vips) == 0 {
		return nil, nil
	}
	ipv4 := slices.ContainsFunc(vips, func(vip netip.Addr) bool { return vip.Unmap().Is4() })
	sockets, err := waitingSockets()
	if err != nil {
		return nil, err
	}
	sockets = slices.DeleteFunc(sockets, func(s socket) bool {
		a := s.local.Addr()
		return !a.IsUnspecified() || a.Is4() && !ipv4
	})
	if len(sockets) == 0 {
		return nil, nil
	}
	owners := processesBySocket()
	exposed := make([]Exposure, 0, len(sockets))
	for _, s := range sockets {
		p := owners[s.inode]
		exposed = append(exposed, Exposure{Proto: s.proto, Addr: s.local, PID: p.pid, Process: p.name})
	}
	slices.SortFunc(exposed, func(a, b Exposure) int {
		return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Addr.Port(), b.Addr.Port()),
			a.Addr.Compare(b.Addr), cmp.Compare(a.PID, b.PID))
	})
	return slices.Compact(exposed), nil
}
