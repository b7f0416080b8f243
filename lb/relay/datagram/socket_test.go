package datagram

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

func TestSocketErrors(t *testing.T) {
	h := testnet.New(t).Host("a")
	_, at := socket(t, h, SocketParams{Local: loopback(false)})
	for _, tc := range []struct {
		name string
		p    SocketParams
		want unix.Errno
	}{
		{"taken", SocketParams{Local: at}, unix.EADDRINUSE},
		{"not shared by the first", SocketParams{Local: at, ReusePort: true}, unix.EADDRINUSE},
		{"absent", SocketParams{Local: netip.MustParseAddrPort("192.0.2.1:53")}, unix.EADDRNOTAVAIL},
		{"absent, IPv6", SocketParams{Local: netip.MustParseAddrPort("[2001:db8::1]:53")}, unix.EADDRNOTAVAIL},
		{"absent, but bound", SocketParams{Local: netip.MustParseAddrPort("[2001:db8::1]:53"), Freebind: true}, 0},
	} {
		var fd int
		var err error
		h.Do(func() { fd, err = NewSocket(tc.p, tc.p.Local.Addr()) })
		if err == nil {
			unix.Close(fd)
		}
		if tc.want == 0 && err != nil || tc.want != 0 && (!errors.Is(err, tc.want) || fd != -1) {
			t.Errorf("%s: %d, %v; want %v", tc.name, fd, err, tc.want)
		}
	}
}

// A lack of ports is told as one, also by connect(2).
func TestConnectWithoutPorts(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		h := testnet.New(t).Host("a")
		h.Sysctl("net.ipv4.ip_local_port_range", "40000 40001")
		var err error
		for range 3 {
			h.Do(func() {
				var fd int
				if fd, err = NewSocket(SocketParams{}, loopback(v6).Addr()); err == nil {
					t.Cleanup(func() { unix.Close(fd) })
					err = Connect(fd, netip.AddrPortFrom(loopback(v6).Addr(), 9))
				}
			})
		}
		if !errors.Is(err, unix.EADDRNOTAVAIL) {
			t.Errorf("the third of two ports: %v", err)
		}
	})
}

// A deaf socket takes nothing and refuses nothing; then it listens.
func TestDeaf(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		h := testnet.New(t).Host("a")
		in, at := socket(t, h, SocketParams{Local: loopback(v6), Deaf: true})
		out, _ := connected(t, h, SocketParams{}, at)
		s, r := new(Sender), NewReceiver()
		s.Add(Datagram{Data: []byte("unheard")})
		flush(t, s, out, 1, 7)
		for range 2 {
			if err := Listen(in); err != nil {
				t.Fatal(err)
			}
		}
		s.Add(Datagram{Data: []byte("heard")})
		flush(t, s, out, 1, 5) // a refusal would be told here
		if got := collect(t, r, in, 1); string(got[0]) != "heard" {
			t.Errorf("got %q", got)
		}
		empty(t, r, in)
	})
}

func TestNames(t *testing.T) {
	for _, s := range []string{"192.0.2.1:53", "[2001:db8::1]:65535", "0.0.0.0:0"} {
		a := netip.MustParseAddrPort(s)
		n, again := NewName(a), NewName(a)
		if n.AddrPort() != a || !n.Equal(&again) {
			t.Errorf("%s became %s", a, n.AddrPort())
		}
	}
	mapped := NewName(netip.MustParseAddrPort("[::ffff:192.0.2.1]:53"))
	if got := mapped.AddrPort(); got != netip.MustParseAddrPort("192.0.2.1:53") {
		t.Errorf("a mapped address became %s", got)
	}
	a, b := NewName(netip.MustParseAddrPort("192.0.2.1:53")), NewName(netip.MustParseAddrPort("192.0.2.1:54"))
	if a.Equal(&b) || a.Equal(&mapped) || b.Equal(&a) {
		t.Error("different names are equal")
	}
}
