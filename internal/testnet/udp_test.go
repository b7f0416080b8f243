package testnet

import (
	"net/netip"
	"testing"
	"time"
)

func TestServeUDP(t *testing.T) {
	n := New(t)
	a, b := n.Host("a"), n.Host("b")
	n.Connect(a, b)
	b.ServeUDP(netip.AddrPortFrom(b.IP4, 53), NamedUDP("b"))
	b.ServeUDP(netip.AddrPortFrom(b.IP6, 53), TellPeerUDP)
	b.ServeUDP(netip.AddrPortFrom(b.IP4, 54), func(got []byte, _ netip.AddrPort) []byte {
		if string(got) == "first" {
			return nil
		}
		return got
	})
	for _, tt := range []struct {
		to   netip.AddrPort
		says []string
		want func(me string) string
	}{
		{netip.AddrPortFrom(b.IP4, 53), []string{"?"}, func(string) string { return "b" }},
		{netip.AddrPortFrom(b.IP6, 53), []string{"?"}, func(me string) string { return me + "\n?" }},
		{netip.AddrPortFrom(b.IP4, 54), []string{"first", "second"}, func(string) string { return "second" }},
	} {
		c, err := a.Dial("udp", tt.to)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, says := range tt.says {
			if _, err := c.Write([]byte(says)); err != nil {
				t.Fatal(err)
			}
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		got := make([]byte, 128)
		if n, err := c.Read(got); err != nil || string(got[:n]) != tt.want(c.LocalAddr().String()) {
			t.Errorf("%s answers %q, %v", tt.to, got[:n], err)
		}
	}
}

// Hosts of a bridge are one network.
func TestBridge(t *testing.T) {
	n := New(t)
	bridge := n.Bridge(n.Host("switch"), "br0")
	hosts := []*Host{n.Host("a"), n.Host("b"), n.Host("c")}
	for i, h := range hosts {
		h.AddAddr(bridge.Join(h), netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 1)}), 24))
		h.Serve(80, Named(h.Name()))
	}
	for i, h := range hosts {
		for _, from := range hosts {
			at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 1)}), 80)
			if name, err := from.AskName(at); err != nil || name != h.Name() {
				t.Errorf("%s asks %s: %q, %v", from.Name(), at, name, err)
			}
		}
	}
}
