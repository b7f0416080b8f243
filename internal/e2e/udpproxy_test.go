package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	proxyproto "github.com/pires/go-proxyproto"

	"github.com/baton-lb/baton/internal/flow"
)

// datagramHeader makes a version 2 header for UDP.
func datagramHeader(from, to netip.AddrPort) []byte {
	h := proxyproto.HeaderProxyFromAddrs(2, net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to))
	b, err := h.Format()
	if err != nil {
		panic(err)
	}
	return b
}

// proxiedDatagram answers with what was in a datagram's header and how long the
// rest was.
func proxiedDatagram(b []byte) []byte {
	h, err := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(b), len(b)+1))
	if err != nil {
		return fmt.Appendf(nil, "error: %v", err)
	}
	head, _ := h.Format()
	return fmt.Appendf(nil, "v%d %s %s %d", h.Version, h.SourceAddr, h.DestinationAddr, len(b)-len(head))
}

// U7: each datagram has a header, and one that no longer fits with it is dropped and
// counted.
func TestUDPProxyHeaderOut(t *testing.T) {
	bothPaths(t, 1, func(t *testing.T, w world) {
		s := serveUDP(t, w.Backends[0], w.backend(0), proxiedDatagram)
		b := start(t, w.Balancer, w.udpService(nil, "clientAddress: proxy-v2"))
		c := w.udp(t, w.vip)
		head, most := 28, 65507
		if w.v6 {
			head, most = 52, 65527
		}
		sizes := []int{0, 1, 1, 1, 1472, 9000, most - head}
		for _, n := range sizes {
			want := fmt.Sprintf("v2 %s %s %d", c.LocalAddr(), w.vip, n)
			if got, err := exchange(c, make([]byte, n)); string(got) != want || err != nil {
				t.Errorf("%d bytes: the backend says %q, %v; want %q", n, got, err, want)
			}
		}
		for i, n := range []int{most - head + 1, most} {
			if _, err := c.Write(make([]byte, n)); err != nil {
				t.Fatal(err)
			}
			b.wantMetric(float64(i+1), "baton_drops_total", `reason="too-big"`)
		}
		if n := s.got.Load(); n != int64(len(sizes)) {
			t.Errorf("%d datagrams have come, want %d", n, len(sizes))
		}
		total := 0
		for _, n := range sizes {
			total += n
		}
		if v := b.flows()[0]; v.BytesToBackend != uint64(total) || v.PacketsToBackend != uint64(len(sizes)) {
			t.Errorf("%d bytes in %d datagrams are counted, want %d in %d: a header is not payload", v.BytesToBackend, v.PacketsToBackend, total, len(sizes))
		}
	})
}

// U7: a header from a trusted proxy is believed, clients behind it have sessions of
// their own, and a bad header costs its datagram only.
func TestUDPProxyHeaderIn(t *testing.T) {
	bothPaths(t, 2, func(t *testing.T, w world) {
		for i, h := range w.Backends {
			serveUDP(t, h, w.backend(i), named(h.Name()))
		}
		denied := w.believed(66)
		b := start(t, w.Balancer, w.udpService(nil, w.trusting(), sticky, fmt.Sprintf("deny: [%q]", denied.Addr())))
		c := w.udp(t, w.vip)
		bad := map[string][]byte{
			"missing":   []byte("question"),
			"cut":       datagramHeader(w.believed(1), w.believed(99))[:20],
			"version 1": header(1, w.believed(1), w.believed(99)),
			"for TCP":   header(2, w.believed(1), w.believed(99)),
		}
		n := 0.0
		at := make(map[netip.AddrPort]string)
		for name, head := range bad {
			if _, err := c.Write(head); err != nil {
				t.Fatal(err)
			}
			n++
			b.wantMetric(n, "baton_drops_total", `reason="bad-proxy-header"`)
			for last := range byte(4) {
				client := w.believed(last + 1)
				got, err := exchange(c, append(datagramHeader(client, w.believed(99)), "question"...))
				if err != nil || !strings.HasSuffix(string(got), " question") {
					t.Fatalf("after one %s: %q, %v", name, got, err)
				}
				if before, ok := at[client]; ok && before != string(got) {
					t.Errorf("%s was at %q, is at %q", client, before, got)
				}
				at[client] = string(got)
			}
		}
		for _, v := range b.wantFlows(4) {
			if _, ok := at[v.Client]; !ok || v.Frontend != w.believed(99) || v.PacketsToBackend != uint64(len(bad)) {
				t.Errorf("recorded as %+v", v)
			}
		}
		if _, err := c.Write(append(datagramHeader(denied, w.believed(99)), 'x')); err != nil {
			t.Fatal(err)
		}
		b.wantMetric(1, "baton_drops_total", `reason="denied"`)
	})
}

// U7: two instances in a row, and the last backend knows the first client, also where
// sessions would go into the kernel: each datagram still needs its header.
func TestUDPProxyChain(t *testing.T) {
	bothPaths(t, 2, func(t *testing.T, w world) {
		serveUDP(t, w.Backends[1], w.backend(1), proxiedDatagram)
		inner := w
		inner.vip = w.backend(0)
		second := start(t, w.Backends[0], inner.udpService([]string{fmt.Sprintf("%q", w.backend(1))},
			"clientAddress: proxy-v2", fmt.Sprintf("acceptProxy: [%q]", w.towards(0))))
		first := start(t, w.Balancer, w.udpService([]string{fmt.Sprintf("%q", w.backend(0))}, "clientAddress: proxy-v2"))
		for range 3 {
			c := w.udp(t, w.vip)
			for n := range 3 {
				want := fmt.Sprintf("v2 %s %s %d", c.LocalAddr(), w.vip, n)
				if got, err := exchange(c, make([]byte, n)); string(got) != want || err != nil {
					t.Errorf("the backend says %q, %v; want %q", got, err, want)
				}
			}
		}
		for _, b := range []*baton{first, second} {
			for _, v := range b.wantFlows(3) {
				if v.Frontend != w.vip || v.Protocol != flow.UDP || v.Path != flow.PathUserspace {
					t.Errorf("recorded as %+v", v)
				}
			}
		}
	})
}
