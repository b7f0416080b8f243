package lb

import (
	"fmt"
	"iter"
	"net/netip"
)

// MaxWeight is the largest weight of a backend.
const MaxWeight = 65535

// Backend is one address that serves a service.
type Backend struct {
	Address netip.AddrPort
	More    []netip.Addr // further addresses of a multihomed SCTP backend

	Weight         uint16 // share of the new flows; 0 = none
	Priority       uint16 // 0 is used first; the next only when there is none above
	MaxConnections int    // open flows at once; 0 = no limit
	State          BackendState
	Zone           string // preferred when it is the balancer's own
	Node           string

	Local       bool // on this node
	Far         bool // meant for other nodes by its topology hints
	NotServing  bool // it has stopped to serve
	Terminating bool // on its way out: used only when there is nothing better
}

// addresses yields all addresses of the backend with its port.
func (b *Backend) addresses() iter.Seq[netip.AddrPort] { return withMore(b.Address, b.More) }

// ParseBackend reads "10.202.1.2:8080" as a backend of weight 1.
func ParseBackend(s string) (Backend, error) {
	ap, err := parseAddrPort(s)
	if err != nil {
		return Backend{}, fmt.Errorf("backend %w; want IP:PORT, as 10.202.1.2:8080 or [fd02::2]:8080", err)
	}
	return Backend{Address: ap, Weight: 1}, nil
}
