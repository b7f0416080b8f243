package testnet

import (
	"net/netip"
)

// ServeUDP answers datagrams at an address of the host until the test ends: answer is
// given each, and who has sent it; nil is no answer.
func (h *Host) ServeUDP(at netip.AddrPort, answer func(got []byte, from netip.AddrPort) []byte) {
	h.t.Helper()
	pc, err := h.ListenPacket("udp", at)
	if err != nil {
		h.t.Fatalf("host %s: serve udp %s: %v", h.name, addrString(at), err)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 65536)
		for {
			n, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			if a := answer(b[:n], netip.MustParseAddrPort(from.String())); a != nil {
				_, _ = pc.WriteTo(a, from)
			}
		}
	}()
	h.t.Cleanup(func() { _ = pc.Close(); <-done })
}

// NamedUDP answers every datagram with a name.
func NamedUDP(name string) func([]byte, netip.AddrPort) []byte {
	return func([]byte, netip.AddrPort) []byte { return []byte(name) }
}

// TellPeerUDP answers every datagram with a line that says who has sent it, and with
// what it was.
func TellPeerUDP(got []byte, from netip.AddrPort) []byte {
	return append([]byte(from.String()+"\n"), got...)
}
