package testnet

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
)

// synOptions are those of the last SYN that a capture has from its own port, by
// kind.
func synOptions(c *Capture) map[byte][]byte {
	options := map[byte][]byte{}
	for _, f := range c.Frames() {
		if !f.Out || tcpFlags(f)&0x12 != 2 {
			continue
		}
		tcp := f.Data[ethernetHeader+20:]
		if binary.BigEndian.Uint16(f.Data[atEthertype:]) != 0x0800 {
			tcp = f.Data[atTransport:]
		}
		clear(options)
		for o := tcp[20 : tcp[12]>>4*4]; len(o) > 0; {
			if o[0] <= 1 {
				o = o[1:]
				continue
			}
			options[o[0]] = o[2:o[1]]
			o = o[o[1]:]
		}
	}
	return options
}

func TestTCPSpec(t *testing.T) {
	const scale, sack, timestamps = 3, 4, 8 // kinds of options
	star := NewStar(t, 1)
	capture := star.ClientLink.B.Capture()
	b := star.Backends[0]
	srv := b.Serve(0, Sink)
	for _, tc := range []struct {
		name string
		spec TCPSpec
		want []byte
	}{
		{"default", TCPSpec{}, []byte{2, scale, sack, timestamps}},
		{"no timestamps", TCPSpec{NoTimestamps: true}, []byte{2, scale, sack}},
		{"no SACK", TCPSpec{NoSACK: true}, []byte{2, scale, timestamps}},
		{"no scaling", TCPSpec{NoWindowScaling: true}, []byte{2, sack, timestamps}},
	} {
		star.Client.TCP(tc.spec)
		for _, ip := range []netip.Addr{b.IP4, b.IP6} {
			c, err := star.Client.Dial("tcp", netip.AddrPortFrom(ip, srv.Port))
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			var got []byte
			for kind := range synOptions(capture) {
				got = append(got, kind)
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s, %s: options %v, want %v", tc.name, ip, got, tc.want)
			}
		}
	}
}

func TestWindowScale(t *testing.T) {
	star := NewStar(t, 1)
	capture := star.ClientLink.B.Capture()
	b := star.Backends[0]
	star.Client.TCP(TCPSpec{ReceiveMax: 32 << 10 << MaxWindowScale})
	srv := b.Serve(0, Sink)
	for scale := range MaxWindowScale + 1 {
		c, err := star.Client.DialWith(t.Context(), &net.Dialer{Control: WindowScale(scale)}, "tcp", netip.AddrPortFrom(b.IP6, srv.Port))
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if got := synOptions(capture)[3]; len(got) != 1 || int(got[0]) != scale {
			t.Errorf("asked for scale %d, announced %v", scale, got)
		}
	}
}

func TestTCPSockets(t *testing.T) {
	star := NewStar(t, 1)
	b := star.Backends[0]
	srv := b.Serve(0, Echo)
	if got := b.TCPSockets(); len(got) != 0 {
		t.Fatalf("a host without connections has %v", got)
	}
	for _, ip := range []netip.Addr{b.IP4, b.IP6} {
		c, err := star.Client.Dial("tcp", netip.AddrPortFrom(ip, srv.Port))
		if err != nil {
			t.Fatal(err)
		}
		if err := Ask(c, "hello"); err != nil {
			t.Fatal(err)
		}
		want := TCPSocket{
			Local:  netip.AddrPortFrom(ip, srv.Port),
			Remote: netip.MustParseAddrPort(c.LocalAddr().String()),
			State:  1, // established
		}
		if got := b.TCPSockets(); len(got) != 1 || got[0] != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		_, _ = io.WriteString(c, "")
		c.Close()
		Eventually(t, 5e9, "it is gone", func() error {
			if got := b.TCPSockets(); len(got) > 0 {
				return net.ErrClosed
			}
			return nil
		})
	}
}

func TestParseSocket(t *testing.T) {
	for _, line := range []string{"", "0: x", "0: 00:1 00000000:0000 0A", "0: 00000000:0000 00000000:xyz 0A", "0: 00000000:0000 00000000:0000 GG"} {
		if s, err := parseSocket(line); err == nil {
			t.Errorf("%q is read as %+v", line, s)
		}
	}
}
