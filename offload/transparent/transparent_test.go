package transparent

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
	"github.com/baton-lb/baton/offload/bpf"
)

// tellPeer is a server that says who its client is, and echoes.
func tellPeer(c net.Conn) {
	fmt.Fprintf(c, "%s\n", c.RemoteAddr())
	_, _ = io.Copy(c, c)
}

// The backend sees the client's address and port, and its answers arrive.
func TestTCP(t *testing.T) {
	everyKind(t, func(t *testing.T, g *ground, v6 bool) {
		g.backend.Serve(port, tellPeer)
		c := g.connect(t, v6, 40000)
		want := netip.AddrPortFrom(g.clientAt[v6], 40000).String() + "\n"
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Fatalf("the backend saw %q, %v; want %q", got, err, want)
		}
		data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		sent := make(chan error, 1)
		go func() { _, err := c.Write(data); sent <- err }()
		back := make([]byte, len(data))
		if _, err := io.ReadFull(c, back); err != nil || !bytes.Equal(back, data) {
			t.Errorf("the echo is not what was sent: %v", err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}

// A closed port is refused at once: the reset is delivered too.
func TestRefused(t *testing.T) {
	everyKind(t, func(t *testing.T, g *ground, v6 bool) {
		if c, err := g.dial("tcp", v6, 40000, port); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connected %v, %v", c, err)
		}
	})
}

// The same client port works again at once after this side has closed: what a connection in TIME_WAIT is sent comes to it.
func TestAfterClose(t *testing.T) {
	everyKind(t, func(t *testing.T, g *ground, v6 bool) {
		s := g.backend.Serve(port, testnet.Echo)
		for range 3 {
			c := g.connect(t, v6, 40000)
			if err := testnet.Ask(c, "there?"); err != nil {
				t.Fatal(err)
			}
			c.Close()
			for deadline := time.Now().Add(5 * time.Second); s.Open() > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the backend has not heard of the end")
				}
			}
		}
	})
}

// Datagrams of every size come back, those in fragments too.
func TestUDP(t *testing.T) {
	everyKind(t, func(t *testing.T, g *ground, v6 bool) {
		g.tellPeerUDP(t, v6)
		c, err := g.dial("udp", v6, 40001, port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, size := range []int{1, 1400, 1473, 9000, 65507 - 40} {
			data := bytes.Repeat([]byte{byte(size)}, size)
			back := make([]byte, 65536)
			if _, err := c.Write(data); err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
			n, err := c.Read(back)
			want := netip.AddrPortFrom(g.clientAt[v6], 40001).String() + "\n"
			if err != nil || !bytes.HasPrefix(back[:n], []byte(want)) || n < size {
				t.Fatalf("%d bytes: got %d, %v: %.40q", size, n, err, back[:min(n, 60)])
			}
		}
		if n := g.counts(t); n.Fragments == 0 {
			t.Errorf("no fragments: %+v", n)
		}
	})
}

// A closed UDP port is told by ICMP, which is addressed to the client too.
func TestICMPError(t *testing.T) {
	everyKind(t, func(t *testing.T, g *ground, v6 bool) {
		g.backend.Sysctl("net.ipv4.icmp_ratelimit", "0")
		g.backend.Sysctl("net.ipv6.icmp.ratelimit", "0")
		c, err := g.dial("udp", v6, 40001, port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("anybody?")); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Read(make([]byte, 64)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("got %v", err)
		}
		if n := g.counts(t); n.Errors != 1 {
			t.Errorf("%+v", n)
		}
	})
}

// Connections of the client's own to the same backend, and the other way round, pass by untouched.
func TestOthersPass(t *testing.T) {
	everyKind(t, func(t *testing.T, g *ground, v6 bool) {
		g.backend.Serve(port, tellPeer)
		g.client.Serve(port, tellPeer)
		// What listens on the wildcard here is not what is meant.
		g.between.Serve(port, testnet.Named("between"))
		g.between.Serve(40000, testnet.Named("between"))
		for _, from := range []*testnet.Host{g.client, g.backend} {
			to := g.backendAt[v6]
			if from == g.backend {
				to = g.clientAt[v6]
			}
			c, err := from.Dial("tcp", netip.AddrPortFrom(to, port))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			want := c.LocalAddr().String() + "\n"
			got := make([]byte, len(want))
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
				t.Errorf("%s: %q, %v; want %q", from.Name(), got, err, want)
			}
		}
		if n := g.counts(t); n != (bpf.DivertCounts{}) {
			t.Errorf("diverted %+v", n)
		}
	})
}

// Strict checks of sources pass, with whatever of the marks they look at.
func TestSourceChecks(t *testing.T) {
	for _, sysctls := range [][]string{
		{"net.ipv4.conf.all.rp_filter=1"},
		{"net.ipv4.conf.all.src_valid_mark=1"},
		{"net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.all.src_valid_mark=1"},
		{"net.ipv4.fwmark_reflect=1", "net.ipv6.fwmark_reflect=1", "net.ipv4.tcp_fwmark_accept=1"},
		{"net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0"},
		{"net.ipv4.ip_early_demux=0"},
	} {
		t.Run(fmt.Sprint(sysctls), func(t *testing.T) {
			everyKind(t, func(t *testing.T, g *ground, v6 bool) {
				for _, s := range sysctls {
					key, value, _ := bytes.Cut([]byte(s), []byte("="))
					g.between.Sysctl(string(key), string(value))
				}
				g.backend.Serve(port, testnet.Echo)
				if err := testnet.Ask(g.connect(t, v6, 40000), "there?"); err != nil {
					t.Error(err)
				}
				g.tellPeerUDP(t, v6)
				c, err := g.dial("udp", v6, 40001, port)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(5 * time.Second))
				if _, err := c.Write([]byte("?")); err != nil {
					t.Error(err)
				}
				if _, err := c.Read(make([]byte, 64)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A router that says "too big" to the client is heard by the socket that speaks for it.
func TestNarrowWay(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		star := testnet.NewStar(t, 0)
		far := star.AddRouted("far", testnet.LinkSpec{MTU: 1300})
		g := &ground{
			t: t, client: star.Client, between: star.Balancer, backend: far.Client,
			clientAt:  map[bool]netip.Addr{false: star.Client.IP4, true: star.Client.IP6},
			backendAt: map[bool]netip.Addr{false: far.Client.IP4, true: far.Client.IP6},
		}
		g.open(t)
		g.backend.Serve(port, testnet.Echo)
		c := g.connect(t, v6, 40000)
		data := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
		sent := make(chan error, 1)
		go func() { _, err := c.Write(data); sent <- err }()
		back := make([]byte, len(data))
		if _, err := io.ReadFull(c, back); err != nil || !bytes.Equal(back, data) {
			t.Errorf("the echo is not what was sent: %v", err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		if n := g.counts(t); n.Errors == 0 {
			t.Errorf("nothing was too big: %+v", n)
		}
	}
}
