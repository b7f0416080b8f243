package capture

import (
	"bytes"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/baton-lb/baton/internal/testnet"
)

func TestExposed(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.NewStar(t, 0).Balancer
	for _, at := range []string{"0.0.0.0:22", "[::]:22", "[::]:23"} {
		listenOn(t, h, netip.MustParseAddrPort(at), ListenParams{})
	}
	listenOn(t, h, netip.AddrPortFrom(h.IP4, 80), ListenParams{})
	for network, at := range map[string]netip.AddrPort{
		"udp4": netip.MustParseAddrPort("0.0.0.0:53"), "udp6": netip.MustParseAddrPort("[::]:53"),
		"udp": netip.AddrPortFrom(h.IP4, 54),
	} {
		pc, err := h.ListenPacket(network, at)
		if err != nil {
			t.Fatal(err)
		}
		defer pc.Close()
	}
	tests := []struct {
		vips []netip.Addr
		want []string
	}{
		{nil, nil},
		{addrs("10.96.0.10"), []string{"tcp 0.0.0.0:22", "tcp [::]:22", "tcp [::]:23", "udp 0.0.0.0:53", "udp [::]:53"}},
		{addrs("fd96::10"), []string{"tcp [::]:22", "tcp [::]:23", "udp [::]:53"}},
	}
	by := " by " + process{os.Getpid(), processName("/proc/self")}.String()
	for _, tt := range tests {
		var exposed []Exposure
		var err error
		h.Do(func() { exposed, err = Exposed(tt.vips) })
		var got []string
		for _, e := range exposed {
			text, ok := strings.CutSuffix(e.String(), by)
			if !ok {
				t.Errorf("%s: not by us", e)
			}
			got = append(got, text)
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%v: got %q, %v; want %q", tt.vips, got, err, tt.want)
		}
	}
	if got := (Exposure{Proto: "udp", Addr: netip.MustParseAddrPort("0.0.0.0:9")}).String(); got != "udp 0.0.0.0:9" {
		t.Errorf("unknown process: %q", got)
	}
}

const procTCP = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 10 0
   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000000000000000 100 0 0 10 0
   2: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 4713 1 0000000000000000 20 4 30 10 -1
`

func TestParseSockets(t *testing.T) {
	got, err := parseSockets(strings.NewReader(procTCP), "tcp", "0A")
	want := []socket{
		{"tcp", netip.MustParseAddrPort("127.0.0.1:8080"), 4711},
		{"tcp", netip.MustParseAddrPort("0.0.0.0:22"), 4712},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("got %v, %v; want %v", got, err, want)
	}
	if a, ok := parseProcAddr("B80D0120000000000000000001000000:0050"); !ok || a != netip.MustParseAddrPort("[2001:db8::1]:80") {
		t.Fatalf("got %v, %v", a, ok)
	}
}

func TestCovers(t *testing.T) {
	tests := []struct {
		has, wanted string
		want        bool
	}{
		{"192.0.2.1:80", "192.0.2.1:80", true},
		{"192.0.2.1:80", "192.0.2.1:81", false},
		{"192.0.2.1:80", "192.0.2.2:80", false},
		{"0.0.0.0:80", "192.0.2.2:80", true},
		{"[::]:80", "192.0.2.2:80", true},
		{"0.0.0.0:80", "[fd00::1]:80", false},
		{"192.0.2.1:80", "0.0.0.0:80", true},
		{"192.0.2.1:80", "[::]:80", false},
		{"[fd00::1]:80", "0.0.0.0:80", false},
		{"[fe80::1]:80", "[fe80::1%eth0]:80", true},
	}
	for _, tt := range tests {
		s := socket{local: netip.MustParseAddrPort(tt.has)}
		if got := s.covers(netip.MustParseAddrPort(tt.wanted)); got != tt.want {
			t.Errorf("%s covers %s: %v", tt.has, tt.wanted, got)
		}
	}
}

func FuzzParseSockets(f *testing.F) {
	f.Add([]byte(procTCP), true)
	f.Add([]byte("\n0: B80D0120000000000000000001000000:0050 x 07 . . . . . 1\n"), false)
	f.Fuzz(func(t *testing.T, table []byte, tcp bool) {
		proto, state := "udp", "07"
		if tcp {
			proto, state = "tcp", "0A"
		}
		sockets, _ := parseSockets(bytes.NewReader(table), proto, state)
		for _, s := range sockets {
			if !s.local.IsValid() || s.proto != proto {
				t.Fatalf("%+v", s)
			}
		}
	})
}
