package flow

import "net/netip"

// Key identifies a flow by its client leg. It is comparable, has no pointers
// and no holes, so that it can key the hottest maps. Addresses are in IPv6 form
// (IPv4 is IPv4-mapped, RFC 4291 section 2.5.5.2); ports are in host byte order.
type Key struct {
	client, frontend         [16]byte
	clientPort, frontendPort uint16
	proto                    Proto
	is4                      bool
	_                        [2]byte
}

// NewKey makes the key of a flow from client to frontend.
func NewKey(p Proto, client, frontend netip.AddrPort) Key {
	return Key{
		client:       client.Addr().As16(),
		frontend:     frontend.Addr().As16(),
		clientPort:   client.Port(),
		frontendPort: frontend.Port(),
		proto:        p,
		is4:          client.Addr().Unmap().Is4(),
	}
}

// Proto is the flow's IP protocol.
func (k Key) Proto() Proto { return k.proto }

// Client is where the flow comes from.
func (k Key) Client() netip.AddrPort { return k.addrPort(k.client, k.clientPort) }

// Frontend is the address that the client asked for.
func (k Key) Frontend() netip.AddrPort { return k.addrPort(k.frontend, k.frontendPort) }

func (k Key) addrPort(a [16]byte, port uint16) netip.AddrPort {
	addr := netip.AddrFrom16(a)
	if k.is4 {
		addr = addr.Unmap()
	}
	return netip.AddrPortFrom(addr, port)
}
