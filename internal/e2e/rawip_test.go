package e2e

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// sendPackets sends whole IP packets from the client to the VIP, whatever they say.
func (w world) sendPackets(t *testing.T, packets ...[]byte) {
	t.Helper()
	var fd int
	var err error
	family, level, option := unix.AF_INET, unix.SOL_IP, unix.IP_HDRINCL
	var to unix.Sockaddr = &unix.SockaddrInet4{}
	if w.v6 {
		family, level, option = unix.AF_INET6, unix.SOL_IPV6, unix.IPV6_HDRINCL
		to = &unix.SockaddrInet6{Addr: w.vip.Addr().As16()}
	} else {
		to = &unix.SockaddrInet4{Addr: w.vip.Addr().As4()}
	}
	w.Client.Do(func() { fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW) })
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
		t.Fatal(err)
	}
	for i, p := range packets {
		if err := unix.Sendto(fd, p, 0, to); err != nil {
			t.Fatalf("send packet %d: %v", i, err)
		}
	}
}

// tcpPacket is a segment from a client to the VIP.
func (w world) tcpPacket(t *testing.T, from netip.AddrPort, segment layers.TCP) []byte {
	t.Helper()
	segment.SrcPort, segment.DstPort = layers.TCPPort(from.Port()), layers.TCPPort(w.vip.Port())
	var network interface {
		gopacket.NetworkLayer
		gopacket.SerializableLayer
	}
	if w.v6 {
		network = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP,
			SrcIP: from.Addr().AsSlice(), DstIP: w.vip.Addr().AsSlice()}
	} else {
		network = &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP,
			SrcIP: from.Addr().AsSlice(), DstIP: w.vip.Addr().AsSlice()}
	}
	if err := segment.SetNetworkLayerForChecksum(network); err != nil {
		t.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, network, &segment); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
