package datagram

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// A client whose datagram is refused hears so from its own socket, of whatever it
// asked: the address need not be that of a socket here.
func TestRefuse(t *testing.T) {
	testnet.RequireRoot(t)
	star := testnet.NewStar(t, 0)
	for _, asked := range []netip.AddrPort{
		netip.AddrPortFrom(star.Balancer.IP4, 53), netip.AddrPortFrom(star.Balancer.IP6, 53),
	} {
		t.Run(asked.String(), func(t *testing.T) {
			silent, err := star.Balancer.ListenPacket("udp", asked) // else the kernel refuses
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close()
			c, err := star.Client.Dial("udp", asked)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			var r Refuser
			defer r.Close()
			star.Balancer.Do(func() {
				err = r.Refuse(netip.MustParseAddrPort(c.LocalAddr().String()), asked, time.Now())
			})
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := c.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("the client reads %v, want %v", err, unix.ECONNREFUSED)
			}
		})
	}
}

func TestRefusalsAreBounded(t *testing.T) {
	client, asked := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2")
	testnet.RequireRoot(t)
	host := testnet.New(t).Host("balancer")
	var r Refuser
	defer r.Close()
	host.Do(func() {
		now, sent := time.Now(), 0
		for range 2 * refusalsPerSecond {
			if err := r.Refuse(client, asked, now); err == nil {
				sent++
			} else if !errors.Is(err, ErrRefusals) {
				t.Fatal(err)
			}
		}
		if sent != refusalsPerSecond {
			t.Errorf("%d in one moment, want %d", sent, refusalsPerSecond)
		}
		if err := r.Refuse(client, asked, now.Add(time.Second)); err != nil {
			t.Errorf("a second later: %v", err)
		}
	})
}
