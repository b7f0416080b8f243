package kube

import (
	"net/netip"
	"testing"
)

func TestParseAddr(t *testing.T) {
	for in, want := range map[string]string{
		"10.96.0.10":      "10.96.0.10",
		"010.096.000.010": "10.96.0.10", // decimal, as the API has read it ever since
		"FD96:0::10":      "fd96::10",
		"::ffff:10.0.0.1": "10.0.0.1",
		"fe80::1%eth0":    "fe80::1%eth0",
	} {
		if a, err := parseAddr(in); err != nil || a.String() != want {
			t.Errorf("%q: %v, %v; want %s", in, a, err, want)
		}
	}
	for _, in := range []string{"", "10.0.0", "10.0.0.256", "10.0.0.x", "10.0.0.1/8", "10.0.0.-1", "here", "00.0.0.", "1.2.3.4.5", " 10.0.0.1"} {
		if a, err := parseAddr(in); err == nil {
			t.Errorf("%q is read as %v", in, a)
		}
	}
}

func TestParsePrefix(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.0/8":       "10.0.0.0/8",
		" 192.0.2.77/24\t": "192.0.2.0/24",
		"010.000.0.00/08":  "",
		"010.000.0.00/8":   "10.0.0.0/8",
		"0.0.0.0/0":        "0.0.0.0/0",
		"fd00::1/8":        "fd00::/8",
		"10.0.0.0":         "",
		"10.0.0.0/33":      "",
		"::ffff:1.2.3.4/8": "",
		"fe80::1%eth0/64":  "",
		"":                 "",
	} {
		p, err := parsePrefix(in)
		if got := p.String(); (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%q: %v, %v; want %q", in, p, err, want)
		}
	}
}

func TestFrontendProblem(t *testing.T) {
	for in, ok := range map[string]bool{
		"10.96.0.10": true, "fd96::10": true, "2001:db8::1": true, "169.254.20.10": true,
		"0.0.0.0": false, "::": false, "127.0.0.1": false, "::1": false, "224.0.0.1": false, "ff02::1": false, "255.255.255.255": false, "fe80::1": false,
	} {
		if p := frontendProblem(netip.MustParseAddr(in)); (p == "") != ok {
			t.Errorf("%s: %q", in, p)
		}
	}
}
