package file

import (
	"math"
	"net/netip"

	"go.yaml.in/yaml/v3"

	"github.com/baton-lb/baton/lb"
)

// backend is a backend while it is read.
type backend struct {
	lb.Backend
	address   *node
	addresses *node
}

var backendFields = []field[backend]{
	{"address", func(_ *decoder, n *node, b *backend) { b.address = n }},
	{"addresses", func(_ *decoder, n *node, b *backend) { b.addresses = n }},
	{"weight", func(d *decoder, n *node, b *backend) { number(d, n, 0, lb.MaxWeight, &b.Weight) }},
	{"zone", func(d *decoder, n *node, b *backend) { printable(d, n, &b.Zone) }},
	{"priority", func(d *decoder, n *node, b *backend) { number(d, n, 0, math.MaxUint16, &b.Priority) }},
	{"state", func(d *decoder, n *node, b *backend) { decodeState(d, n, &b.State) }},
	{"maxConnections", func(d *decoder, n *node, b *backend) { count(d, n, &b.MaxConnections) }},
}

func decodeState(d *decoder, n *node, to *lb.BackendState) {
	if word(d, n, to); *to == "ready" {
		*to = lb.StateReady
	}
}

// decodeBackend reads "IP:PORT" or a map with an address.
func decodeBackend(d *decoder, n *node, to *lb.Backend) {
	if n.Kind != yaml.MappingNode {
		decodeBackendText(d, n, to)
		return
	}
	b := backend{Backend: lb.Backend{Weight: 1}}
	decodeMap(d, n, backendFields, &b)
	d.decodeAddresses(n, &b)
	*to = b.Backend
}

func decodeBackendText(d *decoder, n *node, to *lb.Backend) {
	s, ok := text(d, n)
	if !ok {
		return
	}
	b, err := lb.ParseBackend(s)
	if err != nil {
		d.fault(n, "%s", err)
		return
	}
	*to = b
}

// decodeAddresses puts address and addresses together: the first of all is the
// address of the backend, the others are further ones of the same port.
func (d *decoder) decodeAddresses(n *node, b *backend) {
	if b.address != nil {
		var one lb.Backend
		d.within("address", func() { decodeBackendText(d, b.address, &one) })
		b.Address = one.Address
	}
	switch {
	case b.addresses != nil:
		d.within("addresses", func() { d.decodeMore(b) })
	case b.address == nil && !d.wrong[d.pathString()+".address"]:
		d.fault(n, "address is missing")
	}
}

// decodeMore reads "IP" and "IP:PORT"; a port must be that of the first address.
func (d *decoder) decodeMore(b *backend) {
	all := decodeList(d, b.addresses, func(d *decoder, n *node, to *netip.Addr) {
		s, ok := text(d, n)
		if !ok {
			return
		}
		if a, err := netip.ParseAddr(s); err == nil && b.Address.Port() != 0 {
			*to = a.Unmap()
			return
		}
		one, err := lb.ParseBackend(s)
		switch {
		case err != nil:
			d.fault(n, "%s", err)
			return
		case b.Address.Port() == 0:
			b.Address = one.Address
		case b.Address.Port() != one.Address.Port():
			d.fault(n, "port %d is not that of the first address, %d", one.Address.Port(), b.Address.Port())
			return
		}
		*to = one.Address.Addr()
	})
	for _, a := range all {
		if a.IsValid() && a != b.Address.Addr() {
			b.More = append(b.More, a)
		}
	}
	if len(all) == 0 && b.address == nil {
		d.fault(b.addresses, "is empty")
	}
}

// within runs do one key further down the path.
func (d *decoder) within(key string, do func()) {
	d.path = append(d.path, step{key: key})
	do()
	d.path = d.path[:len(d.path)-1]
}
