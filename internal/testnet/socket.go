package testnet

import (
	"context"
	"net"
	"net/netip"
)

// Listen listens inside the host, without MPTCP. An invalid address means every
// address of both families; port 0 takes a free one.
func (h *Host) Listen(network string, addr netip.AddrPort) (ln net.Listener, err error) {
	return h.ListenWith(&net.ListenConfig{}, network, addr)
}

// ListenWith is Listen with a configuration of the caller's, whose Control may set
// socket options first.
func (h *Host) ListenWith(lc *net.ListenConfig, network string, addr netip.AddrPort) (ln net.Listener, err error) {
	lc.SetMultipathTCP(false)
	h.Do(func() {
		ln, err = lc.Listen(context.Background(), network, addrString(addr))
	})
	return ln, err
}

// ListenPacket opens a datagram socket inside the host.
func (h *Host) ListenPacket(network string, addr netip.AddrPort) (pc net.PacketConn, err error) {
	var lc net.ListenConfig
	h.Do(func() {
		pc, err = lc.ListenPacket(context.Background(), network, addrString(addr))
	})
	return pc, err
}

// Dial connects from the host. The test's context bounds it.
func (h *Host) Dial(network string, raddr netip.AddrPort) (net.Conn, error) {
	return h.DialContext(h.t.Context(), network, netip.AddrPort{}, raddr)
}

// DialContext connects from the host, from laddr if that is valid.
func (h *Host) DialContext(ctx context.Context, network string, laddr, raddr netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	if laddr.IsValid() {
		d.LocalAddr = localAddr(network, laddr)
	}
	return h.DialWith(ctx, &d, network, raddr)
}

// DialWith connects from the host with a dialer of the caller's, whose Control
// may set socket options first. It holds one thread until it returns.
func (h *Host) DialWith(ctx context.Context, d *net.Dialer, network string, raddr netip.AddrPort) (conn net.Conn, err error) {
	h.Do(func() {
		conn, err = d.DialContext(ctx, network, raddr.String())
	})
	return conn, err
}

func addrString(a netip.AddrPort) string {
	if a.Addr().IsValid() {
		return a.String()
	}
	return (&net.TCPAddr{Port: int(a.Port())}).String()
}

func localAddr(network string, a netip.AddrPort) net.Addr {
	if len(network) >= 3 && network[:3] == "udp" {
		return net.UDPAddrFromAddrPort(a)
	}
	return net.TCPAddrFromAddrPort(a)
}
