package testnet

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

func TestSysctlPath(t *testing.T) {
	for _, tc := range []struct{ key, want string }{
		{"net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward"},
		{"net/ipv4/conf/eth0.1/forwarding", "/proc/sys/net/ipv4/conf/eth0.1/forwarding"},
		{"kernel.panic", ""},
		{"vm/overcommit_memory", ""},
		{"net/../kernel/panic", ""},
	} {
		got, err := sysctlPath(tc.key)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: %q, %v; want %q", tc.key, got, err, tc.want)
		}
	}
}

func TestSysctlStaysInTheHost(t *testing.T) {
	const key, path = "net.ipv4.tcp_keepalive_time", "/proc/sys/net/ipv4/tcp_keepalive_time"
	read := func() string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	before := read()
	h := New(t).Host("a")
	h.Sysctl(key, "1234")
	if got := read(); got != before {
		t.Errorf("the machine's %s went from %s to %s", key, before, got)
	}
	h.Do(func() {
		if got := read(); got != "1234" {
			t.Errorf("the host's %s is %s", key, got)
		}
	})
}

func TestForwarding(t *testing.T) {
	star := NewStar(t, 1)
	b := star.Backends[0]
	srv := b.Serve(0, Named("b"))
	for _, ip := range []netip.Addr{b.IP4, b.IP6} {
		addr := netip.AddrPortFrom(ip, srv.Port)
		if _, err := star.Client.AskName(addr); err != nil {
			t.Errorf("forwarding: %v", err)
		}
		star.Balancer.Forwarding(false)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if c, err := star.Client.DialContext(ctx, "tcp", netip.AddrPort{}, addr); err == nil {
			t.Errorf("%s is reached through a balancer that does not forward", ip)
			c.Close()
		}
		cancel()
		star.Balancer.Forwarding(true)
	}
}
