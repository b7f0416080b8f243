package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// routed is the world with a client behind two routers and a narrow link.
func (w world) routed() (world, testnet.Routed) {
	r := w.AddRouted("remote", testnet.LinkSpec{MTU: 1300})
	star := *w.Star
	star.Client = r.Client
	w.Star = &star
	return w, r
}

// C5: a router behind which the way is narrower than both ends know. It says so to
// whom it takes for the sender; the true sender is told, and the transfer ends.
func TestOffloadTooBigForARouter(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.offload = inKernel
		w, _ = w.routed()
		atBackend, atClient := w.wire(t, w.BackendLinks[0].B), w.wire(t, testnet.Port{Host: w.Client, Dev: "eth0"})
		w.Backends[0].Serve(8080, mirror)
		b := start(t, w.Balancer, w.service(nil))
		c := w.dial(t)
		w.carried(b, c)
		began := time.Now()
		if err := reflects(c, 7, 4<<20); err != nil {
			t.Error(err)
		}
		t.Logf("it took %v", time.Since(began))
		w.wantPath(t, b.endedOf(c.LocalAddr()))
		if n := atBackend.tooBig(t); n == 0 {
			t.Error("the backend was not told that its packets are too big")
		}
		atBackend.noReset(t)
		atClient.noReset(t)
	})
}

// C5 and U8 for UDP: the backend is told, its next answers come in fragments, and
// they arrive whole.
func TestOffloadTooBigForARouterUDP(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.offload = inKernel
		w, _ = w.routed()
		serveUDP(t, w.Backends[0], w.backend(0), echo)
		b := start(t, w.Balancer, w.udpService(nil))
		c := w.udp(t, w.vip)
		w.meets(t, b, c)
		for _, n := range []int{1200, 1440, 4000, 9000} {
			data := bytes.Repeat([]byte{byte(n)}, n)
			eventually(t, fmt.Sprintf("%d bytes come back", n), func() error {
				if _, err := c.Write(data); err != nil && !errors.Is(err, unix.EMSGSIZE) {
					return err
				}
				_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
				buf := make([]byte, 70_000)
				got, err := c.Read(buf)
				if err == nil && !bytes.Equal(buf[:got], data) {
					return fmt.Errorf("%d bytes came", got)
				}
				return err
			})
		}
	})
}

// A way of the balancer itself that becomes too narrow under flows in the kernel:
// their senders are told so.
func TestOffloadWayBecomesNarrow(t *testing.T) {
	for _, narrow := range []string{"Backend", "Client"} {
		families(t, narrow, inKernel, 1, func(t *testing.T, w world) {
			w.Backends[0].Serve(8080, mirror)
			b := start(t, w.Balancer, w.service(nil))
			c := w.dial(t)
			w.carried(b, c)
			link := w.ClientLink
			if narrow == "Backend" {
				link = w.BackendLinks[0]
			}
			setMTU(t, link.A, 1300)
			setMTU(t, link.B, 1300)
			if err := reflects(c, 8, 4<<20); err != nil {
				t.Error(err)
			}
			w.wantPath(t, b.endedOf(c.LocalAddr()))
		})
	}
}

// The way to the client moves to another device while a transfer runs in the kernel.
func TestOffloadWayMoves(t *testing.T) {
	const size = 64 << 20
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.offload = inKernel
		begin, moved := make(chan struct{}), make(chan struct{})
		w.Backends[0].Serve(8080, func(c net.Conn) {
			stream := testnet.Stream(9, size)
			<-begin
			_, _ = io.CopyN(c, stream, size/4)
			<-moved
			_, _ = io.Copy(c, stream)
		})
		b := start(t, w.Balancer, w.service(nil))
		c := w.dial(t)
		w.carried(b, c)
		close(begin)
		second := w.Net.Connect(w.Balancer, w.Client)
		from := w.addr(w.Client)
		w.Balancer.AddRoute(hostPrefix(from), addrOf(w, second.B))
		time.Sleep(1500 * time.Millisecond) // a way that is known is used for a second
		close(moved)
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if sum, err := testnet.ReceiveBulk(c); err != nil || sum != testnet.StreamSum(9, size) {
			t.Errorf("the transfer: %v, %v", sum, err)
		}
		c.Close()
		w.wantPath(t, b.endedOf(c.LocalAddr()))
		nl := w.Balancer.Netlink()
		link, err := nl.LinkByName(second.A.Dev)
		if err != nil {
			t.Fatal(err)
		}
		if sent := link.Attrs().Statistics.TxBytes; sent < size/2 {
			t.Errorf("%d bytes went by the new device", sent)
		}
	})
}

// addrOf is the address of a port in the family of the world.
func addrOf(w world, p testnet.Port) netip.Addr {
	if w.v6 {
		return p.IP6
	}
	return p.IP4
}

func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
