package store

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/baton-lb/baton/lb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service makes a service out of its frontends, and then of its backends, as a
// user writes them.
func service(name, frontends string, backends ...string) lb.Service {
	s := lb.Default(name)
	for _, f := range strings.Fields(frontends) {
		fe, err := lb.ParseFrontend(f)
		if err != nil {
			panic(err)
		}
		s.Frontends = append(s.Frontends, fe)
	}
	for _, b := range backends {
		be, err := lb.ParseBackend(b)
		if err != nil {
			panic(err)
		}
		s.Backends = append(s.Backends, be)
	}
	return s
}

func frontendKey(s string) lb.FrontendKey {
	fe, err := lb.ParseFrontend(s)
	if err != nil {
		panic(err)
	}
	return fe.FrontendKey
}

// many makes n services with one frontend and so many backends each.
func many(n, backends int) []lb.Service {
	all := make([]lb.Service, n)
	for i := range all {
		all[i] = numbered(i, backends)
	}
	return all
}

func numbered(i, backends int) lb.Service {
	s := lb.Default(fmt.Sprintf("default/service-%d", i))
	vip := netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})
	s.Frontends = []lb.Frontend{{FrontendKey: lb.FrontendKey{Proto: 6, Address: netip.AddrPortFrom(vip, uint16(80+i>>16))}}}
	s.Backends = make([]lb.Backend, backends)
	for j := range s.Backends {
		pod := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j)})
		s.Backends[j] = lb.Backend{Address: netip.AddrPortFrom(pod, uint16(1024+j>>8)), Weight: 1}
	}
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError fails unless err is there and contains every word.
func wantError(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one about %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not mention %q", err, w)
		}
	}
}
