package capture

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestMarkConnected(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	for _, tc := range []struct {
		name, line string
		want       bool
	}{
		{"listening", "   0: 0100600A:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1", false},
		{"established", "   0: 0100600A:0050 0200CA0A:9C40 01 00000000:00000000 00:00000000 00000000     0        0 77 1", true},
		{"another address", "   0: 0200600A:0050 0200CA0A:9C40 01 00000000:00000000 00:00000000 00000000     0        0 77 1", false},
		{"closed, last bytes on the way", "   0: 0100600A:0050 0200CA0A:9C40 09 00000010:00000000 00:00000000 00000000     0        0 0 1", true},
		{"closed, waits for a FIN", "   0: 0100600A:0050 0200CA0A:9C40 05 00000000:00000000 00:00000000 00000000     0        0 0 1", false},
		{"half-closed", "   0: 0100600A:0050 0200CA0A:9C40 05 00000000:00000000 00:00000000 00000000     0        0 77 1", true},
		{"time wait", "   0: 0100600A:0050 0200CA0A:9C40 06 00000000:00000000 03:00000000 00000000     0        0 0 1", false},
		{"cut short", "   0: 0100600A:0050 0200CA0A:9C40 01", false},
	} {
		vip := netip.MustParseAddr("10.96.0.1")
		wanted := map[netip.Addr]bool{vip: false}
		if err := markConnected(strings.NewReader(head+tc.line+"\n"), wanted); err != nil || wanted[vip] != tc.want {
			t.Errorf("%s: %v, %v; want %v", tc.name, wanted[vip], err, tc.want)
		}
	}
}

func TestConnected(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		a := netip.MustParseAddr(addr)
		ln, err := net.Listen("tcp", netip.AddrPortFrom(a, 0).String())
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		other := netip.MustParseAddr("192.0.2.1")
		got, err := Connected([]netip.Addr{a, other})
		if err != nil || !got[a] || got[other] {
			t.Errorf("%s: %v, %v", addr, got, err)
		}
	}
}
