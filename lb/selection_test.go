package lb

import (
	"net/netip"
	"testing"
)

func TestSelectionHas(t *testing.T) {
	v4, v6 := netip.MustParseAddrPort("10.1.0.1:80"), netip.MustParseAddrPort("[fd01::1]:80")
	here, far := &Backend{Address: v4, Local: true, Far: true}, &Backend{Address: v4, Far: true}
	there, there6 := &Backend{Address: v4}, &Backend{Address: v6}
	for _, c := range []struct {
		name                     string
		selection                Selection
		here, far, there, there6 bool
	}{
		{"all", Selection{}, true, true, true, true},
		{"local", Selection{Subset: LocalBackends}, true, false, false, false},
		{"near", Selection{Subset: NearBackends}, false, false, true, true},
		{"IPv4", Selection{Family: IPv4}, true, true, true, false},
		{"near IPv6", Selection{NearBackends, IPv6}, false, false, false, true},
	} {
		got := [4]bool{c.selection.Has(here), c.selection.Has(far), c.selection.Has(there), c.selection.Has(there6)}
		if want := [4]bool{c.here, c.far, c.there, c.there6}; got != want {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
		if c.selection.IsAll() != (c.name == "all") {
			t.Errorf("%s: IsAll is %v", c.name, c.selection.IsAll())
		}
	}
}

func TestFrontendSelection(t *testing.T) {
	f := frontendOf("tcp://[fd96::10]:80")
	f.Subset, f.InsideSubset = LocalBackends, NearBackends
	if out, in := f.Selection(false), f.Selection(true); out != (Selection{LocalBackends, AnyFamily}) || in != (Selection{NearBackends, AnyFamily}) {
		t.Errorf("%v, %v", out, in)
	}
	f.SameFamily = true
	if out, in := f.Selection(false), f.Selection(true); out != (Selection{LocalBackends, IPv6}) || in != (Selection{NearBackends, IPv6}) {
		t.Errorf("of its own family: %v, %v", out, in)
	}
	f = frontendOf("tcp://10.96.0.10:80")
	if f.SameFamily = true; f.Selection(false) != (Selection{AllBackends, IPv4}) {
		t.Errorf("%v", f.Selection(false))
	}
}
