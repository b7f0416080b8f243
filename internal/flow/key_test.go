package flow

import (
	"net/netip"
	"testing"
	"unsafe"
)

func TestKeyRoundTrip(t *testing.T) {
	for _, c := range []struct {
		name                           string
		proto                          Proto
		client, frontend               string
		clientReadsAs, frontendReadsAs string // "" = as given
	}{
		{"IPv4", TCP, "192.0.2.7:40000", "10.96.0.10:80", "", ""},
		{"IPv6", UDP, "[2001:db8::7]:40000", "[fd96::10]:53", "", ""},
		{"ports at the ends", SCTP, "192.0.2.7:0", "10.96.0.10:65535", "", ""},
		{"IPv4-mapped", TCP, "[::ffff:192.0.2.7]:1", "[::ffff:10.96.0.10]:80", "192.0.2.7:1", "10.96.0.10:80"},
		{"mapped client only", TCP, "[::ffff:192.0.2.7]:1", "10.96.0.10:80", "192.0.2.7:1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := NewKey(c.proto, netip.MustParseAddrPort(c.client), netip.MustParseAddrPort(c.frontend))
			want := func(given, reads string) netip.AddrPort {
				if reads == "" {
					reads = given
				}
				return netip.MustParseAddrPort(reads)
			}
			if got := k.Client(); got != want(c.client, c.clientReadsAs) {
				t.Errorf("client %s", got)
			}
			if got := k.Frontend(); got != want(c.frontend, c.frontendReadsAs) {
				t.Errorf("frontend %s", got)
			}
			if k.Proto() != c.proto {
				t.Errorf("proto %s", k.Proto())
			}
		})
	}
}

// Whatever part differs, the key differs; IPv4 and IPv4-mapped do not.
func TestKeyIdentity(t *testing.T) {
	key := func(p Proto, c, f string) Key {
		return NewKey(p, netip.MustParseAddrPort(c), netip.MustParseAddrPort(f))
	}
	base := key(TCP, "192.0.2.7:1", "10.0.0.1:80")
	if base != key(TCP, "[::ffff:192.0.2.7]:1", "[::ffff:10.0.0.1]:80") {
		t.Error("IPv4 and IPv4-mapped are two keys")
	}
	for name, k := range map[string]Key{
		"proto":         key(UDP, "192.0.2.7:1", "10.0.0.1:80"),
		"client":        key(TCP, "192.0.2.8:1", "10.0.0.1:80"),
		"client port":   key(TCP, "192.0.2.7:2", "10.0.0.1:80"),
		"frontend":      key(TCP, "192.0.2.7:1", "10.0.0.2:80"),
		"frontend port": key(TCP, "192.0.2.7:1", "10.0.0.1:81"),
		"swapped":       key(TCP, "10.0.0.1:80", "192.0.2.7:1"),
	} {
		if k == base {
			t.Errorf("another %s, the same key", name)
		}
	}
}

func TestKeyHasNoHoles(t *testing.T) {
	if n := unsafe.Sizeof(Key{}); n != 40 {
		t.Errorf("%d bytes, want 40", n)
	}
}

func FuzzKey(f *testing.F) {
	f.Add([]byte{192, 0, 2, 7}, []byte{10, 96, 0, 10}, uint16(40000), uint16(80), uint8(6))
	v6 := netip.MustParseAddr("2001:db8::1").As16()
	f.Add(v6[:], v6[:], uint16(1), uint16(65535), uint8(132))
	f.Fuzz(func(t *testing.T, c, fe []byte, cp, fp uint16, p uint8) {
		ca, ok1 := netip.AddrFromSlice(c)
		fa, ok2 := netip.AddrFromSlice(fe)
		if !ok1 || !ok2 || ca.Unmap().Is4() != fa.Unmap().Is4() {
			return // a flow is of one family
		}
		k := NewKey(Proto(p), netip.AddrPortFrom(ca, cp), netip.AddrPortFrom(fa, fp))
		if k.Client() != netip.AddrPortFrom(ca.Unmap(), cp) || k.Frontend() != netip.AddrPortFrom(fa.Unmap(), fp) || k.Proto() != Proto(p) {
			t.Errorf("%s %s %s came back as %s %s %s", Proto(p), ca, fa, k.Proto(), k.Client(), k.Frontend())
		}
	})
}
