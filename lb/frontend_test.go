package lb

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
)

func TestParseFrontend(t *testing.T) {
	addrs := func(list ...string) (out []netip.Addr) {
		for _, s := range list {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	for _, c := range []struct {
		in    string
		proto flow.Proto
		addr  string
		more  []netip.Addr
		back  string // String; "" = in
	}{
		{"tcp://10.96.0.10:80", flow.TCP, "10.96.0.10:80", nil, ""},
		{"udp://[fd96::10]:53", flow.UDP, "[fd96::10]:53", nil, ""},
		{"sctp://10.0.0.1:3868", flow.SCTP, "10.0.0.1:3868", nil, ""},
		{"tcp://0.0.0.0:65535", flow.TCP, "0.0.0.0:65535", nil, ""},
		{"tcp://[::]:1", flow.TCP, "[::]:1", nil, ""},
		{"tcp://[::ffff:10.96.0.10]:80", flow.TCP, "10.96.0.10:80", nil, "tcp://10.96.0.10:80"},
		{"tcp://[FD96:0:0::10]:080", flow.TCP, "[fd96::10]:80", nil, "tcp://[fd96::10]:80"},
		{"sctp://10.0.0.1|10.1.0.1:3868", flow.SCTP, "10.0.0.1:3868", addrs("10.1.0.1"), ""},
		{"sctp://10.0.0.1|[fd96::1]|10.2.0.1:3868", flow.SCTP, "10.0.0.1:3868", addrs("fd96::1", "10.2.0.1"), ""},
		{"sctp://[fd96::1]|[fd97::1]:3868", flow.SCTP, "[fd96::1]:3868", addrs("fd97::1"), ""},
		{"sctp://fd96::1|[fd97::1]:3868", flow.SCTP, "[fd96::1]:3868", addrs("fd97::1"), "sctp://[fd96::1]|[fd97::1]:3868"},
		{"sctp://[::ffff:10.0.0.1]|10.1.0.1:1", flow.SCTP, "10.0.0.1:1", addrs("10.1.0.1"), "sctp://10.0.0.1|10.1.0.1:1"},
	} {
		t.Run(c.in, func(t *testing.T) {
			f, err := ParseFrontend(c.in)
			if err != nil {
				t.Fatal(err)
			}
			want := Frontend{FrontendKey: FrontendKey{c.proto, netip.MustParseAddrPort(c.addr)}, More: c.more}
			if !reflect.DeepEqual(f, want) {
				t.Errorf("%+v, want %+v", f, want)
			}
			if c.back == "" {
				c.back = c.in
			}
			if f.String() != c.back {
				t.Errorf("written %s, want %s", f, c.back)
			}
		})
	}
}

func TestParseFrontendFaults(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", "want PROTOCOL://IP:PORT"},
		{"10.96.0.10:80", "want PROTOCOL://IP:PORT"},
		{"tcp:10.96.0.10:80", "want PROTOCOL://IP:PORT"},
		{"http://10.96.0.10:80", `unknown protocol "http"`},
		{"TCP://10.96.0.10:80", `unknown protocol "TCP"`},
		{"tcp://", `"" is not IP:PORT`},
		{"tcp://10.96.0.10", `"10.96.0.10" is not IP:PORT`},
		{"tcp://10.96.0.10:", "is not IP:PORT"},
		{"tcp://:80", "is not IP:PORT"},
		{"tcp://10.96.0.10:0", "has port 0"},
		{"tcp://10.96.0.10:65536", "is not IP:PORT"},
		{"tcp://10.96.0.10:http", "is not IP:PORT"},
		{"tcp://10.96.0.256:80", "is not IP:PORT"},
		{"tcp://web.example:80", "is not IP:PORT"},
		{"tcp://fd96::10:80", "is not IP:PORT"},
		{"tcp://10.96.0.10:80/", "is not IP:PORT"},
		{"tcp:// 10.96.0.10:80", "is not IP:PORT"},
		{"sctp://10.0.0.1|:3868", "is not IP:PORT"},
		{"sctp://|10.0.0.1:3868", `address "" is not an IP address`},
		{"sctp://10.0.0.1:1|10.1.0.1:3868", `address "10.0.0.1:1" is not an IP address`},
		{"sctp://[10.0.0.1|10.1.0.1:3868", `address "[10.0.0.1" is not an IP address`},
		{"sctp://fd96::1]|10.1.0.1:3868", `address "fd96::1]" is not an IP address`},
		{"sctp://]fd96::1[|10.1.0.1:3868", "is not an IP address"},
		{"sctp://[[fd96::1]]|10.1.0.1:3868", "is not an IP address"},
	} {
		f, err := ParseFrontend(c.in)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "frontend ") {
			t.Errorf("%q: %+v, %v; want %q", c.in, f, err, c.want)
		}
		if !reflect.DeepEqual(f, Frontend{}) {
			t.Errorf("%q: half of it was read: %+v", c.in, f)
		}
	}
}

func FuzzParseFrontend(f *testing.F) {
	for _, s := range []string{
		"tcp://10.96.0.10:80", "udp://[fd96::10]:53", "sctp://10.0.0.1|10.1.0.1:3868", "sctp://[fd96::1]|[fd97::1]:3868",
		"tcp://[fe80::1%eth0]:80", "tcp://[::ffff:10.0.0.1]:80", "sctp://[::ffff:1.2.3.4%a]|10.1.0.1:1", "sctp://fe80::1%]|[::1]:1", "://", "tcp://|:1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		fe, err := ParseFrontend(s)
		if err != nil {
			return
		}
		if fe.Address.Port() == 0 || fe.Address.Addr().Is4In6() {
			t.Errorf("%q was read as %+v", s, fe)
		}
		// Zones may hold what a URL cannot; Validate refuses them.
		for a := range fe.addresses() {
			if a.Addr().Zone() != "" {
				return
			}
		}
		if again, err := ParseFrontend(fe.String()); err != nil || !reflect.DeepEqual(again, fe) {
			t.Errorf("%q is written %s and read again as %+v, %v", s, fe, again, err)
		}
	})
}
