package offload

import (
	"net/netip"
	"testing"
	"time"
)

var (
	back4 = netip.MustParseAddrPort("10.202.1.2:8080")
	back6 = netip.MustParseAddrPort("[fd00:202:1::2]:8080")
)

func testPorts(t testing.TB, p PortParams, reserved string) *ports {
	t.Helper()
	r, err := parsePortSet(reserved)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newPorts(p, r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLentPorts(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("10.202.1.9")}
	for _, tt := range []struct {
		name        string
		p           PortParams
		first, last uint16
	}{
		{"the default", PortParams{}, 46884, 60999},
		{"a range", PortParams{First: 40000, Last: 49999}, 45000, 49999},
		{"one port", PortParams{First: 40000, Last: 40000}, 40000, 40000},
		{"addresses of ours", PortParams{First: 40000, Last: 49999, Addresses: own}, 40000, 49999},
	} {
		if first, last := tt.p.Lent(); first != tt.first || last != tt.last {
			t.Errorf("%s: %d-%d, want %d-%d", tt.name, first, last, tt.first, tt.last)
		}
		handed, upTo := tt.p.handedOff()
		from, steered := tt.p.Steered()
		if all := int(tt.last-tt.first) + 1; handed != tt.first || steered != tt.last || upTo+1 != from || int(steered)-int(from)+1 != all/4 {
			t.Errorf("%s: handoffs have %d-%d, steered flows %d-%d", tt.name, handed, upTo, from, steered)
		}
	}
}

// Every port is lent once towards a backend, none that is reserved, and towards
// another backend all are free.
func TestTakePorts(t *testing.T) {
	s := testPorts(t, PortParams{First: 39934, Last: 40465}, "1,40250-40259,50000")
	for _, backend := range []netip.AddrPort{back4, back6} {
		seen := make(map[uint16]bool)
		for range 190 {
			local, ok := s.take(backend)
			p := local.Port()
			if !ok || seen[p] || p < 40200 || p > 40399 || p >= 40250 && p <= 40259 || local.Addr().IsValid() {
				t.Fatalf("lent %v, %v after %d", local, ok, len(seen))
			}
			seen[p] = true
		}
		if local, ok := s.take(backend); ok {
			t.Errorf("lent %v when none was left", local)
		}
	}
	s.give(netip.AddrPortFrom(netip.MustParseAddr("10.202.1.1"), 40333), back4)
	if local, ok := s.take(back4); !ok || local.Port() != 40333 {
		t.Errorf("lent %v, %v, want what was given back", local, ok)
	}
}

func TestPortsOfAddresses(t *testing.T) {
	a, b := netip.MustParseAddr("10.202.1.8"), netip.MustParseAddr("10.202.1.9")
	s := testPorts(t, PortParams{First: 40000, Last: 40012, Addresses: []netip.Addr{a, b, netip.MustParseAddr("fd00::9")}}, "")
	count := make(map[netip.Addr]int)
	for range 20 {
		local, ok := s.take(back4)
		if !ok {
			t.Fatalf("none left after %v", count)
		}
		count[local.Addr()]++
	}
	if count[a] != 10 || count[b] != 10 {
		t.Errorf("%v", count)
	}
	if _, ok := s.take(back4); ok {
		t.Error("one more")
	}
	if local, ok := s.take(back6); !ok || local.Addr() != netip.MustParseAddr("fd00::9") {
		t.Errorf("%v, %v", local, ok)
	}
}

func TestQuarantine(t *testing.T) {
	s := testPorts(t, PortParams{First: 40000, Last: 40000}, "")
	now := time.Now()
	local, _ := s.take(back4)
	s.rest(local, back4, now.Add(quarantine))
	if !s.tidy(now.Add(quarantine - time.Second)) {
		t.Error("nothing to tidy, before the end of a quarantine")
	}
	if _, ok := s.take(back4); ok {
		t.Error("lent while in quarantine")
	}
	if s.tidy(now.Add(quarantine)) {
		t.Error("something to tidy afterwards")
	}
	if _, ok := s.take(back4); !ok {
		t.Error("not lent after the quarantine")
	}
}

// A port that a flow of an earlier process has is not lent, nor given back twice.
func TestMarkPorts(t *testing.T) {
	s := testPorts(t, PortParams{First: 40000, Last: 40003}, "")
	local := netip.MustParseAddrPort("10.202.1.1:40002")
	s.mark(local, back4)
	s.mark(local, back4)
	s.mark(netip.MustParseAddrPort("10.202.1.1:9"), back4) // of another range
	one, _ := s.take(back4)
	if _, ok := s.take(back4); ok || one.Port() != 40003 {
		t.Errorf("lent %v, and another: %v", one, ok)
	}
	s.give(local, back4)
	s.give(local, back4)
	s.give(netip.MustParseAddrPort("10.202.1.1:9"), back4)
	if b := s.blocks[portKey{backend: back4}]; b.used != 1 {
		t.Errorf("%d used, want 1", b.used)
	}
}

// Backends without flows are forgotten when there are many.
func TestForgetBackends(t *testing.T) {
	s := testPorts(t, PortParams{First: 40000, Last: 40003}, "")
	for i := range 2 * keptBlocks {
		backend := netip.AddrPortFrom(back4.Addr(), uint16(i+1))
		local, _ := s.take(backend)
		if i > 0 {
			s.give(local, backend)
		}
	}
	s.tidy(time.Now())
	if len(s.blocks) > keptBlocks {
		t.Errorf("%d backends are remembered", len(s.blocks))
	}
	if s.blocks[portKey{backend: netip.AddrPortFrom(back4.Addr(), 1)}] == nil {
		t.Error("one with a flow was forgotten")
	}
}

func TestNoPorts(t *testing.T) {
	all, err := parsePortSet("40000-40009")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []PortParams{{First: 40000, Last: 40009}, {First: 50000, Last: 49999, Addresses: []netip.Addr{back4.Addr()}}} {
		if s, err := newPorts(p, all); err == nil {
			t.Errorf("%+v: %+v", p, s)
		}
	}
}

func BenchmarkTakePort(b *testing.B) {
	s := testPorts(b, PortParams{}, "")
	for range 10000 {
		s.take(back4)
	}
	b.ReportAllocs()
	for b.Loop() {
		local, _ := s.take(back4)
		s.give(local, back4)
	}
}
