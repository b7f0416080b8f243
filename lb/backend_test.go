package lb

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func TestParseBackend(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"10.202.1.2:8080", "10.202.1.2:8080"},
		{"[fd02::2]:1", "[fd02::2]:1"},
		{"[::ffff:10.0.0.1]:65535", "10.0.0.1:65535"},
	} {
		b, err := ParseBackend(c.in)
		want := Backend{Address: netip.MustParseAddrPort(c.want), Weight: 1}
		if err != nil || !reflect.DeepEqual(b, want) {
			t.Errorf("%q: %+v, %v", c.in, b, err)
		}
	}
	for _, c := range []struct{ in, want string }{
		{"", `"" is not IP:PORT`},
		{"10.0.0.1", "is not IP:PORT; want IP:PORT, as"},
		{"10.0.0.1:0", "has port 0"},
		{"10.0.0.1:65536", "is not IP:PORT"},
		{"10.0.0.1:-1", "is not IP:PORT"},
		{"fd02::2:80", "is not IP:PORT"},
		{"tcp://10.0.0.1:80", "is not IP:PORT"},
		{"web:80", "is not IP:PORT"},
	} {
		if b, err := ParseBackend(c.in); err == nil || !strings.Contains(err.Error(), c.want) || b.Weight != 0 {
			t.Errorf("%q: %+v, %v; want %q", c.in, b, err, c.want)
		}
	}
}

func TestBackendState(t *testing.T) {
	for s, want := range map[BackendState]string{StateReady: "ready", StateDrain: "drain", StateDown: "down"} {
		if s.String() != want {
			t.Errorf("%q is written %s", string(s), s)
		}
		if b, err := json.Marshal(s); err != nil || string(b) != `"`+want+`"` {
			t.Errorf("%q is written %s, %v", string(s), b, err)
		}
	}
}

func FuzzParseBackend(f *testing.F) {
	for _, s := range []string{"10.202.1.2:8080", "[fd02::2]:1", "[::ffff:10.0.0.1]:1", "[fe80::1%a]:1", "10.0.0.1:0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := ParseBackend(s)
		if err != nil {
			return
		}
		if b.Address.Port() == 0 || b.Address.Addr().Is4In6() || b.Weight != 1 {
			t.Errorf("%q was read as %+v", s, b)
		}
		if b.Address.Addr().Zone() != "" {
			return
		}
		if again, err := ParseBackend(b.Address.String()); err != nil || !reflect.DeepEqual(again, b) {
			t.Errorf("%q is read again as %+v, %v", s, again, err)
		}
	})
}
