package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// U8: a datagram that comes in fragments, the last one first, is delivered whole,
// and so is its answer.
func TestUDPFragmentsOutOfOrder(t *testing.T) {
	bothPaths(t, 1, func(t *testing.T, w world) {
		serveUDP(t, w.Backends[0], w.backend(0), echo)
		b := start(t, w.Balancer, w.udpService(nil))
		c := w.udp(t, w.vip)
		w.meets(t, b, c)
		from := netip.MustParseAddrPort(c.LocalAddr().String())
		for i, order := range [][]int{{2, 1, 0}, {1, 2, 0}, {0, 2, 1}} {
			data := bytes.Repeat([]byte{byte('a' + i), byte(i), 7}, 4000/3)
			w.sendFragments(t, from, data, uint32(100+i), order)
			if got, err := receive(c); err != nil || !bytes.Equal(got, data) {
				t.Errorf("order %v: %d bytes came back, %v", order, len(got), err)
			}
		}
		// An ordinary one of that size goes too.
		data := bytes.Repeat([]byte("x"), 4000)
		if got, err := exchange(c, data); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes came back, %v", len(got), err)
		}
	})
}

// sendFragments sends a datagram to the VIP in fragments of 1,400 bytes, in the
// given order.
func (w world) sendFragments(t *testing.T, from netip.AddrPort, data []byte, id uint32, order []int) {
	t.Helper()
	const size = 1400
	packet := udpPacket(from, w.vip, data)
	var fragments [][]byte
	for at := 0; at < len(packet); at += size {
		part := packet[at:min(at+size, len(packet))]
		more := at+size < len(packet)
		if w.v6 {
			fragments = append(fragments, fragment6(from.Addr(), w.vip.Addr(), id, at, more, part))
		} else {
			fragments = append(fragments, fragment4(from.Addr(), w.vip.Addr(), id, at, more, part))
		}
	}
	inOrder := make([][]byte, 0, len(fragments))
	for _, i := range order {
		inOrder = append(inOrder, fragments[i])
	}
	w.sendPackets(t, inOrder...)
}

// udpPacket is a UDP header with its checksum, and data.
func udpPacket(from, to netip.AddrPort, data []byte) []byte {
	p := make([]byte, 8, 8+len(data))
	binary.BigEndian.PutUint16(p, from.Port())
	binary.BigEndian.PutUint16(p[2:], to.Port())
	binary.BigEndian.PutUint16(p[4:], uint16(8+len(data)))
	p = append(p, data...)
	var pseudo []byte
	pseudo = append(pseudo, from.Addr().AsSlice()...)
	pseudo = append(pseudo, to.Addr().AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(p)))
	pseudo = append(pseudo, 0, 0, 0, unix.IPPROTO_UDP)
	binary.BigEndian.PutUint16(p[6:], checksum(append(pseudo, p...)))
	return p
}

// checksum is that of RFC 1071.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) > 0 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func fragment4(from, to netip.Addr, id uint32, at int, more bool, part []byte) []byte {
	h := make([]byte, 20, 20+len(part))
	h[0], h[8], h[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(part)))
	binary.BigEndian.PutUint16(h[4:], uint16(id))
	flags := uint16(at / 8)
	if more {
		flags |= 0x2000
	}
	binary.BigEndian.PutUint16(h[6:], flags)
	copy(h[12:], from.AsSlice())
	copy(h[16:], to.AsSlice())
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, part...)
}

func fragment6(from, to netip.Addr, id uint32, at int, more bool, part []byte) []byte {
	h := make([]byte, 48, 48+len(part))
	h[0], h[6], h[7] = 0x60, unix.IPPROTO_FRAGMENT, 64
	binary.BigEndian.PutUint16(h[4:], uint16(8+len(part)))
	copy(h[8:], from.AsSlice())
	copy(h[24:], to.AsSlice())
	h[40] = unix.IPPROTO_UDP
	flags := uint16(at) // a multiple of 8: the offset's unit stands 3 bits up
	if more {
		flags |= 1
	}
	binary.BigEndian.PutUint16(h[42:], flags)
	binary.BigEndian.PutUint32(h[44:], id)
	return append(h, part...)
}

// A way to the backend, or to the client, that takes only smaller packets than the
// client's way does not lose or cut bursts that would go together.
func TestUDPSmallLink(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		serveUDP(t, w.Backends[0], w.backend(0), echo)
		for _, link := range []testnet.Link{w.BackendLinks[0], w.ClientLink} {
			for _, p := range []testnet.Port{link.A, link.B} {
				setMTU(t, p, 1300)
			}
			b := start(t, w.Balancer, w.udpService(nil))
			c := w.udp(t, w.vip)
			_ = c.(*net.UDPConn).SetReadBuffer(8 << 20)
			for round := range 5 {
				want := make(map[string]bool)
				for i := range 40 {
					data := append(fmt.Appendf(nil, "%d of %d ", i, round), make([]byte, 1380)...)
					want[string(data)] = true
					if _, err := c.Write(data); err != nil && !errors.Is(err, unix.EMSGSIZE) {
						t.Fatal(err)
					}
				}
				for len(want) > 0 {
					got, err := receive(c)
					if err != nil || !want[string(got)] {
						t.Fatalf("round %d: %d are missing; got %d bytes, %v", round, len(want), len(got), err)
					}
					delete(want, string(got))
				}
			}
			if n := b.metric("baton_drops_total"); n != 0 {
				t.Errorf("%v datagrams were dropped", n)
			}
			_ = b.stop(syscall.SIGTERM)
			for _, p := range []testnet.Port{link.A, link.B} {
				setMTU(t, p, 1500)
			}
		}
	})
}

func setMTU(t *testing.T, p testnet.Port, mtu int) {
	t.Helper()
	nl := p.Host.Netlink()
	link, err := nl.LinkByName(p.Dev)
	if err == nil {
		err = nl.LinkSetMTU(link, mtu)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A backend whose host is gone answers with nothing at all: the network says so
// after a while, and the session goes elsewhere.
func TestUDPBackendHostGone(t *testing.T) {
	bothPaths(t, 2, func(t *testing.T, w world) {
		for i, h := range w.Backends {
			serveUDP(t, h, w.backend(i), named(h.Name()))
		}
		for _, l := range w.BackendLinks {
			w.Balancer.Sysctl("net/ipv4/neigh/"+l.A.Dev+"/retrans_time_ms", "100")
			w.Balancer.Sysctl("net/ipv6/neigh/"+l.A.Dev+"/retrans_time_ms", "100")
		}
		b := start(t, w.Balancer, w.udpService(nil))
		c := w.udp(t, w.vip)
		got, err := exchange(c, []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		w.carriedUDP(b, c)
		first := 0
		if strings.HasPrefix(string(got), w.Backends[1].Name()) {
			first = 1
		}
		w.vanish(t, first)
		eventually(t, "the other backend answers", func() error {
			now, err := try(c)
			if err == nil && string(now) == string(got) {
				err = errors.New("the backend that is gone answers")
			}
			return err
		})
	})
}

// vanish takes a backend's address away, and the balancer's memory of it.
func (w world) vanish(t *testing.T, i int) {
	t.Helper()
	l := w.BackendLinks[i]
	nl := l.B.Host.Netlink()
	link, err := nl.LinkByName(l.B.Dev)
	if err != nil {
		t.Fatal(err)
	}
	family, bits := netlink.FAMILY_V4, 24
	if w.v6 {
		family, bits = netlink.FAMILY_V6, 64
	}
	addr := w.addr(w.Backends[i])
	if err := nl.AddrDel(link, &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(bits, addr.BitLen())}}); err != nil {
		t.Fatal(err)
	}
	nl = l.A.Host.Netlink()
	if link, err = nl.LinkByName(l.A.Dev); err != nil {
		t.Fatal(err)
	}
	_ = nl.NeighDel(&netlink.Neigh{LinkIndex: link.Attrs().Index, Family: family, IP: addr.AsSlice()})
}

// U5: a storm of ICMP from backends and clients that are gone hides nothing from
// those that are there.
func TestUDPStormOfICMP(t *testing.T) {
	everyPath(t, 2, func(t *testing.T, w world) {
		for _, h := range append(w.Backends, w.Client) {
			h.Sysctl("net.ipv4.icmp_ratelimit", "0")
			h.Sysctl("net.ipv6.icmp.ratelimit", "0")
		}
		s := serveUDP(t, w.Backends[1], w.backend(1), echo)
		dead := w
		dead.vip = netip.AddrPortFrom(w.vip.Addr(), 81)
		b := start(t, w.Balancer, w.udpService(nil)+dead.another("dead", "udp", 0))
		live := w.udp(t, w.vip)
		eventually(t, "the live backend answers", func() error { _, err := try(live); return err })
		stop := make(chan struct{})
		var storm sync.WaitGroup
		for range 2 {
			to := w.udp(t, dead.vip)
			storm.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					_, _ = to.Write([]byte("nobody answers"))
					if c, err := w.Client.Dial("udp", w.vip); err == nil && i%20 == 0 {
						_, _ = c.Write([]byte("and nobody listens"))
						c.Close()
					} else if err == nil {
						c.Close()
					}
				}
			})
		}
		refused := func() float64 {
			return b.metric("baton_dial_failures_total", fmt.Sprintf("service=%q", w.called("dead")), `reason="refused"`)
		}
		for i, deadline := 0, time.Now().Add(20*time.Second); i < 150 || refused() < 10; i++ {
			want := fmt.Sprint("question ", i)
			got, err := exchange(live, []byte(want))
			for string(got) == "x" && err == nil { // of what was asked twice before
				got, err = receive(live)
			}
			if string(got) != want || err != nil {
				t.Fatalf("%q: got %q, %v", want, got, err)
			}
			if time.Now().After(deadline) {
				t.Fatal("there was no storm")
			}
		}
		close(stop)
		storm.Wait()
		if s.senders() == 0 {
			t.Error("nobody but the one client was there")
		}
	})
}
