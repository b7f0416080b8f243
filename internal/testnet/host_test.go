package testnet

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
)

// current is the namespace of the calling thread, told apart by inode.
func current(t *testing.T) string {
	t.Helper()
	ns, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

func TestDoEntersAndComesBack(t *testing.T) {
	net := New(t)
	a, b := net.Host("a"), net.Host("b")
	outside := current(t)
	a.Do(func() {
		inA := current(t)
		if inA == outside {
			t.Errorf("Do ran outside, in %s", inA)
		}
		b.Do(func() {
			if inB := current(t); inB == inA || inB == outside {
				t.Errorf("nested Do ran in %s", inB)
			}
		})
		if got := current(t); got != inA {
			t.Errorf("after the nested Do: %s, want %s", got, inA)
		}
	})
	if got := current(t); got != outside {
		t.Errorf("after Do: %s, want %s", got, outside)
	}
}

func TestDoComesBackFromPanic(t *testing.T) {
	h := New(t).Host("a")
	outside := current(t)
	func() {
		defer func() { _ = recover() }()
		h.Do(func() { panic("inside") })
	}()
	if got := current(t); got != outside {
		t.Errorf("after a panic: %s, want %s", got, outside)
	}
}

func TestDoOfClosedHostFails(t *testing.T) {
	r := &recorder{T: t}
	h := &Host{t: r, name: "gone", ns: netns.None()}
	h.Do(func() { t.Error("ran") })
	if !strings.Contains(r.verdict, "host gone: enter network namespace") {
		t.Errorf("got %q", r.verdict)
	}
}

func TestHostNamesAreUnique(t *testing.T) {
	RequireRoot(t)
	r := &recorder{T: t}
	net := New(r)
	net.Host("a")
	net.Host("a")
	if want := "fatal: host a: there is one already"; r.verdict != want {
		t.Errorf("got %q, want %q", r.verdict, want)
	}
}

func TestHostHasOnlyLoopback(t *testing.T) {
	h := New(t).Host("a")
	h.Do(func() {
		ifs, err := net.Interfaces()
		if err != nil || len(ifs) != 1 || ifs[0].Flags&net.FlagUp == 0 {
			t.Errorf("interfaces %v, %v; want lo alone, up", ifs, err)
		}
	})
	for _, lo := range []string{"127.0.0.1", "::1"} {
		ln, err := h.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddr(lo), 0))
		if err != nil {
			t.Errorf("listen on %s: %v", lo, err)
			continue
		}
		ln.Close()
	}
}

func TestAddAddrIsUsableAtOnce(t *testing.T) {
	n := New(t)
	a, b := n.Host("a"), n.Host("b")
	l := n.Connect(a, b)
	for _, p := range []string{"192.0.2.7/32", "2001:db8::7/128"} {
		prefix := netip.MustParsePrefix(p)
		b.AddAddr(l.B.Dev, prefix)
		via := l.B.IP4
		if prefix.Addr().Is6() {
			via = l.B.IP6
		}
		a.AddRoute(prefix, via)
		srv := b.ServeAddr(netip.AddrPortFrom(prefix.Addr(), 0), Named("b"))
		if name, err := a.AskName(netip.AddrPortFrom(prefix.Addr(), srv.Port)); name != "b" || err != nil {
			t.Errorf("%s answers %q, %v", p, name, err)
		}
	}
}
