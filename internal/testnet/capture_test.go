package testnet

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tcpFlags of a frame: 0 when it is no TCP segment.
func tcpFlags(f Frame) byte {
	switch binary.BigEndian.Uint16(f.Data[atEthertype:]) {
	case unix.ETH_P_IP:
		if f.Data[protocol4] == unix.IPPROTO_TCP {
			return f.Data[ethernetHeader+20+atTCPFlags]
		}
	case unix.ETH_P_IPV6:
		if f.Data[header6] == unix.IPPROTO_TCP {
			return f.Data[atTransport+atTCPFlags]
		}
	}
	return 0
}

// Of a connection with a transfer its beginning and its end are kept, from both
// directions and of both families; so is a refusal.
func TestCapture(t *testing.T) {
	const fin, syn, rst = 1, 2, 4
	star := NewStar(t, 1)
	capture := star.ClientLink.B.Capture()
	b := star.Backends[0]
	srv := b.Serve(0, func(c net.Conn) {
		_, _ = SendBulk(c, 1, 1<<20)
		closeWrite(c)
		_, _ = io.Copy(io.Discard, c)
	})
	for i, ip := range []netip.Addr{b.IP4, b.IP6} {
		began := len(capture.Frames())
		c, err := star.Client.Dial("tcp", netip.AddrPortFrom(ip, srv.Port))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReceiveBulk(c); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if _, err := star.Client.Dial("tcp", netip.AddrPortFrom(ip, 1)); err == nil {
			t.Fatal("a closed port took a connection")
		}
		var got [2][8]int // by direction and flags
		Eventually(t, 5*time.Second, "both have closed", func() error {
			got = [2][8]int{}
			for _, f := range capture.Frames()[began:] {
				out := 0
				if f.Out {
					out = 1
				}
				got[out][tcpFlags(f)&7]++
			}
			if got[0][fin] == 0 || got[1][fin] == 0 {
				return errors.New("no FIN")
			}
			return nil
		})
		if got[1][syn] != 2 || got[0][syn] != 1 || got[0][rst] != 1 || got[1][rst] != 0 || got[0][0]+got[1][0] != 0 {
			t.Errorf("family %d: in %v, out %v (indexed by FIN 1, SYN 2, RST 4)", i, got[0], got[1])
		}
	}
}

// ICMP errors are kept.
func TestCaptureOfErrors(t *testing.T) {
	star := NewStar(t, 1)
	capture := star.ClientLink.B.Capture()
	b := star.Backends[0]
	for _, ip := range []netip.Addr{b.IP4, b.IP6} {
		began := len(capture.Frames())
		c, err := star.Client.Dial("udp", netip.AddrPortFrom(ip, 9))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write([]byte("anybody there?"))
		Eventually(t, 5*time.Second, "there is an error", func() error {
			if len(capture.Frames()) == began {
				return errors.New("there is none")
			}
			return nil
		})
	}
}
