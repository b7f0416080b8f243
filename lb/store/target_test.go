package store

import (
	"encoding/json"
	"net/netip"
	"testing"
)

func TestParseTarget(t *testing.T) {
	ap := netip.MustParseAddrPort
	for in, want := range map[string]Target{
		"web":                          {Service: "web"},
		"web/10.0.0.1:80":              {Service: "web", Backend: ap("10.0.0.1:80")},
		"10.0.0.1:80":                  {Backend: ap("10.0.0.1:80")},
		"[fd00::1]:80":                 {Backend: ap("[fd00::1]:80")},
		"[::ffff:10.0.0.1]:80":         {Backend: ap("10.0.0.1:80")},
		"default/web:http":             {Service: "default/web:http"},
		"default/web:http/10.0.0.1:80": {Service: "default/web:http", Backend: ap("10.0.0.1:80")},
		"web/[fd00::1]:80":             {Service: "web", Backend: ap("[fd00::1]:80")},
		"10.0.0.1":                     {Service: "10.0.0.1"},
	} {
		got, err := ParseTarget(in)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "/", "web/", "/web", "/10.0.0.1:80"} {
		if got, err := ParseTarget(in); err == nil {
			t.Errorf("%q: %+v, want an error", in, got)
		}
	}
}

func TestTargetJSON(t *testing.T) {
	b, err := json.Marshal([]Target{{Service: "web"}})
	must(t, err)
	var back []Target
	must(t, json.Unmarshal(b, &back))
	if string(b) != `["web"]` || back[0].Service != "web" {
		t.Errorf("%s, %v", b, back)
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"web", "web/10.0.0.1:80", "10.0.0.1:80", "a/b/[fd00::1]:80", "[::ffff:1.2.3.4]:0", "//"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		a, err := ParseTarget(in)
		if err != nil {
			return
		}
		b, err := ParseTarget(a.String())
		if err != nil || a != b {
			t.Fatalf("%q: %+v is written %q and read %+v, %v", in, a, a, b, err)
		}
	})
}
