package proxyproto

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"net/netip"
	"testing"

	oracle "github.com/pires/go-proxyproto"
)

func FuzzParse(f *testing.F) {
	for _, tt := range parseTests {
		f.Add([]byte(tt.in))
	}
	f.Add(appendCRC(Append(nil, V2, Stream, ap("192.0.2.1:1"), ap("198.51.100.1:2"))))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := Parse(b)
		switch {
		case err == nil:
			checkHeader(t, h)
			checkOracle(t, b[:n], h)
		case n != 0 || h != Header{}:
			t.Fatalf("%+v, %d with %v", h, n, err)
		case err == ErrIncomplete:
			checkCompletable(t, b)
		case err != ErrTooLong && !errors.Is(err, ErrMalformed):
			t.Fatalf("error %v is none of ours", err)
		}
	})
}

// checkHeader holds what is true of every header.
func checkHeader(t *testing.T, h Header) {
	t.Helper()
	if h.Local == h.Source.IsValid() || h.Local == h.Destination.IsValid() || h.Local != (h.Transport == Unspecified) {
		t.Fatalf("contradicts itself: %+v", h)
	}
	if h.Source.Addr().Is4In6() || h.Source.Addr().Zone() != "" {
		t.Fatalf("source %v", h.Source)
	}
}

// checkOracle: what we accept the library accepts, takes as many bytes for and reads the same in, but for three things:
// it refuses UNSPEC with the PROXY command and judges the family of a LOCAL one, where the specification says otherwise;
// and it ends an UNKNOWN line at a lone LF.
func checkOracle(t *testing.T, b []byte, h Header) {
	t.Helper()
	if h.Local && (h.Version == V2 || bytes.Contains(b[:len(b)-2], []byte("\n"))) {
		return
	}
	r := bufio.NewReaderSize(bytes.NewReader(b), MaxV2)
	o, err := oracle.Read(r)
	if err != nil {
		t.Fatalf("the oracle refuses %q: %v", b, err)
	}
	if r.Buffered() != 0 {
		t.Fatalf("the oracle leaves %d bytes of %q", r.Buffered(), b)
	}
	if h.Local {
		if !o.Command.IsLocal() {
			t.Fatalf("the oracle finds addresses in %q", b)
		}
		return
	}
	if src, dst := addrPort(o.SourceAddr), addrPort(o.DestinationAddr); src != h.Source || dst != h.Destination {
		t.Fatalf("%q: we read %v %v, the oracle %v %v", b, h.Source, h.Destination, src, dst)
	}
	if _, err := o.TLVs(); err != nil {
		t.Fatalf("the oracle refuses the TLVs of %q: %v", b, err)
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	ap := netip.MustParseAddrPort(a.String())
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// checkCompletable: what is called incomplete can be completed, byte by byte, each chosen so that it is not refused. No
// way back is ever needed if every step tells the truth.
func checkCompletable(t *testing.T, b []byte) {
	t.Helper()
	const first = "\n\r 0:.\x00\x04\x0c\x24\xd8" // bytes that lead to an end soon
	b = bytes.Clone(b)
next:
	for len(b) < 700 {
		for c := range 256 + len(first) {
			try := byte(c - len(first))
			if c < len(first) {
				try = first[c]
			}
			switch _, _, err := Parse(append(b, try)); err {
			case nil, errCRC:
				return
			case ErrIncomplete:
				b = append(b, try)
				continue next
			}
		}
		t.Fatalf("called incomplete, but no byte may follow: %q", b)
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add(true, true, []byte{192, 0, 2, 1}, []byte{198, 51, 100, 1}, uint16(56324), uint16(443))
	f.Add(false, false, netip.MustParseAddr("2001:db8::1").AsSlice(), []byte{1, 2, 3, 4}, uint16(0), uint16(65535))
	f.Add(true, false, netip.MustParseAddr("::ffff:1.2.3.4").AsSlice(), netip.MustParseAddr("::").AsSlice(), uint16(1), uint16(2))
	f.Add(false, true, []byte{}, []byte{1, 2, 3, 4}, uint16(1), uint16(2))
	f.Fuzz(func(t *testing.T, v1, stream bool, src, dst []byte, sport, dport uint16) {
		want := Header{Version: V2, Transport: Datagram}
		if v1 {
			want.Version = V1
		}
		if stream {
			want.Transport = Stream
		}
		s, _ := netip.AddrFromSlice(src)
		d, _ := netip.AddrFromSlice(dst)
		want.Source = netip.AddrPortFrom(s.Unmap(), sport)
		want.Destination = netip.AddrPortFrom(d.Unmap(), dport)
		b := Append(nil, want.Version, want.Transport, netip.AddrPortFrom(s, sport), netip.AddrPortFrom(d, dport))
		if !s.IsValid() || !d.IsValid() || v1 && !stream {
			want = Header{Version: want.Version, Local: true}
		}
		got, n, err := Parse(append(b, "\r\ndata"...))
		if err != nil || n != len(b) || got != want {
			t.Fatalf("%q: got %+v, %d, %v; want %+v, %d", b, got, n, err, want, len(b))
		}
		checkOracle(t, b, got)
	})
}
