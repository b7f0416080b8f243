package capture

import (
	"errors"
	"net/netip"
	"testing"
)

func TestParseMode(t *testing.T) {
	for _, m := range []Mode{Auto, SKLookup, AnyIP, Bind} {
		if got, err := ParseMode(m.String()); got != m || err != nil {
			t.Errorf("ParseMode(%q) = %v, %v", m.String(), got, err)
		}
	}
	if m, err := ParseMode(""); m != Auto || err != nil {
		t.Errorf("ParseMode(\"\") = %v, %v", m, err)
	}
	for _, s := range []string{"Auto", "tproxy", " bind"} {
		if _, err := ParseMode(s); err == nil {
			t.Errorf("ParseMode(%q) is fine", s)
		}
	}
	if got := Mode(9).String(); got != "mode(9)" {
		t.Errorf("got %q", got)
	}
}

func TestDecide(t *testing.T) {
	host := &Host{
		addrs:    map[netip.Addr]address{addr("192.0.2.1"): {Addr: addr("192.0.2.1"), device: device{name: "eth0"}}},
		local:    map[netip.Addr]string{addr("10.96.0.9"): "route local 10.96.0.9/32 dev lo proto static"},
		special:  map[netip.Addr]string{addr("192.0.2.255"): "broadcast"},
		gateways: map[netip.Addr]string{addr("192.0.2.254"): "next hop to 0.0.0.0/0"},
		ours:     map[netip.Addr]netip.Addr{addr("10.96.0.11"): {}},
	}
	tests := []struct {
		mode Mode
		vip  string
		want Mode
		err  error
	}{
		{Auto, "192.0.2.1", Bind, nil},
		{Auto, "::ffff:192.0.2.1", Bind, nil},
		{Auto, "10.96.0.10", AnyIP, nil},
		{Auto, "10.96.0.9", AnyIP, nil},  // local by a route of somebody else
		{Auto, "10.96.0.11", AnyIP, nil}, // by ours, left by a crash: not bind
		{Auto, "127.0.0.5", Bind, nil},
		{Auto, "::1", Bind, nil},
		{Auto, "192.0.2.254", AnyIP, ErrGateway},
		{Auto, "192.0.2.255", AnyIP, ErrNotUnicast},
		{AnyIP, "10.96.0.10", AnyIP, nil},
		{AnyIP, "fd96::10", AnyIP, nil},
		{AnyIP, "127.0.0.5", Bind, nil},
		{AnyIP, "192.0.2.1", AnyIP, ErrHostAddress},
		{AnyIP, "192.0.2.254", AnyIP, ErrGateway},
		{AnyIP, "255.255.255.255", AnyIP, ErrNotUnicast},
		{AnyIP, "224.0.0.1", AnyIP, ErrNotUnicast},
		{AnyIP, "ff02::1", AnyIP, ErrNotUnicast},
		{AnyIP, "0.0.0.0", AnyIP, ErrNotUnicast},
		{AnyIP, "::", AnyIP, ErrNotUnicast},
		{AnyIP, "fe80::1", AnyIP, ErrNotUnicast},
		{AnyIP, "169.254.20.10", AnyIP, nil},
		{Bind, "192.0.2.1", Bind, nil},
		{Bind, "10.96.0.10", Bind, nil}, // Listen says that it is absent
		{SKLookup, "10.96.0.10", SKLookup, nil},
		{SKLookup, "127.0.0.1", Bind, nil},
		{SKLookup, "192.0.2.1", SKLookup, ErrHostAddress},
		{SKLookup, "192.0.2.254", SKLookup, ErrGateway},
		{SKLookup, "ff02::1", SKLookup, ErrNotUnicast},
	}
	for _, tt := range tests {
		for _, guarded := range []bool{false, true} {
			want := tt.want
			if guarded && tt.mode == Auto && want == AnyIP {
				want = SKLookup
			}
			got, err := Decide(tt.mode, addr(tt.vip), host, guarded)
			if got != want || !errors.Is(err, tt.err) {
				t.Errorf("Decide(%s, %s, guarded %t) = %s, %v; want %s, %v", tt.mode, tt.vip, guarded, got, err, want, tt.err)
			}
		}
	}
	if _, err := Decide(AnyIP, netip.Addr{}, host, false); !errors.Is(err, ErrNotUnicast) {
		t.Errorf("no address: %v", err)
	}
}
