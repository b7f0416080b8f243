package admin

import (
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
)

func TestParseEndpoint(t *testing.T) {
	for _, tc := range []struct {
		in, prefix string
		port       uint16
		err        string
	}{
		{in: "10.0.0.1", prefix: "10.0.0.1/32"},
		{in: "10.0.0.1:4711", prefix: "10.0.0.1/32", port: 4711},
		{in: "10.0.0.0/8", prefix: "10.0.0.0/8"},
		{in: "10.1.2.3/8", prefix: "10.0.0.0/8"},
		{in: "10.0.0.0/8:80", prefix: "10.0.0.0/8", port: 80},
		{in: "0.0.0.0/0", prefix: "0.0.0.0/0"},
		{in: "fd00::1", prefix: "fd00::1/128"},
		{in: "[fd00::1]", prefix: "fd00::1/128"},
		{in: "[fd00::1]:80", prefix: "fd00::1/128", port: 80},
		{in: "fd00::/8", prefix: "fd00::/8"},
		{in: "[fd00::/8]:80", prefix: "fd00::/8", port: 80},
		{in: "::/0", prefix: "::/0"},
		{in: "::ffff:10.0.0.1", prefix: "10.0.0.1/32"},
		{in: "::ffff:10.0.0.0/104", prefix: "10.0.0.0/8"},
		{in: "::ffff:10.0.0.0/90", err: "want IP"},
		{in: "", err: "want IP"},
		{in: "web", err: "want IP"},
		{in: "10.0.0", err: "want IP"},
		{in: "10.0.0.1:", err: "port"},
		{in: "10.0.0.1:0", err: "port"},
		{in: "10.0.0.1:65536", err: "port"},
		{in: "10.0.0.1:http", err: "port"},
		{in: "10.0.0.0/33", err: "want IP"},
		{in: "[10.0.0.1]:80", err: "want IP"},
		{in: "[fd00::1", err: "want IP"},
		{in: "[fd00::1]80", err: "want IP"},
		{in: "fe80::1%eth0", err: "want IP"},
		{in: ":80", err: "want IP"},
	} {
		e, err := parseEndpoint(tc.in)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q: got %v, want an error with %q", tc.in, err, tc.err)
			}
			continue
		}
		if err != nil || e.prefix.String() != tc.prefix || e.port != tc.port {
			t.Errorf("%q: got %s port %d, %v", tc.in, e.prefix, e.port, err)
		}
	}
}

func TestFilterMatch(t *testing.T) {
	v := &flow.View{
		Protocol: flow.TCP, Service: "web", Path: flow.PathUserspace, State: flow.Established,
		Frontend: netip.MustParseAddrPort("10.96.0.10:80"),
		Client:   netip.MustParseAddrPort("10.201.1.2:40000"),
		Backend:  netip.MustParseAddrPort("10.202.1.2:8080"),
	}
	for _, tc := range []struct {
		query string
		want  bool
	}{
		{"", true},
		{"service=web", true},
		{"service=api", false},
		{"service=api&service=web", true},
		{"service=web&client=10.0.0.0/8", true},
		{"service=web&client=192.0.2.0/24", false},
		{"client=10.201.1.2:40000", true},
		{"client=10.201.1.2:40001", false},
		{"client=fd00::/8", false},
		{"client=::/0", false},
		{"client=0.0.0.0/0", true},
		{"backend=10.202.1.2", true},
		{"backend=10.202.1.2:8081", false},
		{"frontend=tcp://10.96.0.10:80", true},
		{"frontend=udp://10.96.0.10:80", false},
		{"frontend=10.96.0.10", true},
		{"frontend=10.96.0.10:443&frontend=10.96.0.10:80", true},
		{"protocol=tcp", true},
		{"protocol=udp", false},
		{"path=userspace", true},
		{"path=bpf", false},
		{"state=established", true},
		{"state=ended&state=dialing", false},
		{"protocol=tcp&path=userspace&state=established&service=web", true},
		{"protocol=tcp&path=userspace&state=dialing&service=web", false},
	} {
		q, err := url.ParseQuery(tc.query)
		if err != nil {
			t.Fatal(err)
		}
		spec := FilterSpecFrom(q)
		f, err := spec.Parse()
		if err != nil {
			t.Errorf("%s: %v", tc.query, err)
		} else if f.Match(v) != tc.want {
			t.Errorf("%s: got %v", tc.query, !tc.want)
		}
		if again := FilterSpecFrom(spec.Values()); !reflect.DeepEqual(again, spec) {
			t.Errorf("%s: Values lost something: %+v", tc.query, again)
		}
	}
	// A flow that has no backend yet is at none.
	f := Filter{backends: []endpoint{{prefix: netip.MustParsePrefix("0.0.0.0/0")}}}
	if f.Match(&flow.View{}) {
		t.Error("matches a flow without a backend")
	}
}

func TestFilterErrorsNameTheFlag(t *testing.T) {
	for _, tc := range []struct {
		spec FilterSpec
		want string
	}{
		{FilterSpec{Service: []string{""}}, "--service: is empty"},
		{FilterSpec{Client: []string{"x"}}, `--client "x": want IP`},
		{FilterSpec{Protocol: []string{"icmp"}}, `--protocol "icmp": unknown protocol`},
		{FilterSpec{Path: []string{"xdp"}}, `--path "xdp": use userspace, bpf, flowtable, kernel`},
		{FilterSpec{State: []string{"open"}}, `--state "open": use dialing, established, half-closed`},
		{FilterSpec{Frontend: []string{"http://10.0.0.1"}}, `--frontend "http://10.0.0.1": unknown protocol "http"`},
	} {
		_, err := tc.spec.Parse()
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("got %v, want %s…", err, tc.want)
		}
	}
}

func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{"10.0.0.1", "10.0.0.0/8:80", "[fd00::/8]:80", "fd00::1", "::ffff:1.2.3.4/104", "[", "]:", "1:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := parseEndpoint(s)
		if err != nil {
			return
		}
		if !e.prefix.IsValid() || e.prefix != e.prefix.Masked() || e.prefix.Addr().Is4In6() {
			t.Fatalf("%q: prefix %s", s, e.prefix)
		}
		port := e.port
		if port == 0 {
			port = 1
		}
		if !e.matches(netip.AddrPortFrom(e.prefix.Addr(), port)) {
			t.Fatalf("%q does not match its own address", s)
		}
	})
}
