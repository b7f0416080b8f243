package load

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// cable is a client and a server on one link, in one family.
type cable struct {
	client, server *testnet.Host
	at             netip.AddrPort // the server's
	from           netip.Addr     // the client's
}

func eachFamily(t *testing.T, test func(t *testing.T, c cable)) {
	for _, v6 := range []bool{false, true} {
		t.Run(map[bool]string{false: "IPv4", true: "IPv6"}[v6], func(t *testing.T) {
			t.Cleanup(Quiet())
			n := testnet.New(t)
			c := cable{client: n.Host("client"), server: n.Host("server")}
			l := n.Connect(c.client, c.server)
			c.at, c.from = netip.AddrPortFrom(l.B.IP4, 80), l.A.IP4
			if v6 {
				c.at, c.from = netip.AddrPortFrom(l.B.IP6, 80), l.A.IP6
			}
			test(t, c)
		})
	}
}

func (c cable) serveTCP(t *testing.T, kind Kind) *Server {
	t.Helper()
	s, err := ServeTCP(c.server, c.at, kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func (c cable) serveUDP(t *testing.T, kind Kind) *Server {
	t.Helper()
	s, err := ServeUDP(c.server, c.at, kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func wait(t *testing.T, what string, done func() bool, c *Client) {
	t.Helper()
	testnet.Eventually(t, 10*time.Second, what, func() error {
		if done() {
			return nil
		}
		if c != nil && c.Err() != nil {
			return c.Err()
		}
		return errors.New("not yet")
	})
}

func TestExchanges(t *testing.T) {
	for _, tc := range []struct {
		name  string
		after After
		conns int
	}{{"one", Again, 1}, {"again", Again, 8}, {"reconnect", Reconnect, 8}} {
		t.Run(tc.name, func(t *testing.T) {
			eachFamily(t, func(t *testing.T, c cable) {
				s := c.serveTCP(t, Echo)
				x, err := StartExchanges(c.client, ExchangeSpec{Targets: []netip.AddrPort{c.at}, Conns: tc.conns, Size: 128, After: tc.after})
				if err != nil {
					t.Fatal(err)
				}
				defer x.Stop()
				x.Record(true)
				before := x.Done() // those that were over, or nearly, when recording began
				wait(t, "200 exchanges", func() bool { return x.Done() >= before+200 }, x)
				x.Stop()
				if x.Err() != nil || s.Err() != nil {
					t.Errorf("client: %v, server: %v", x.Err(), s.Err())
				}
				if n := x.Latency().Count(); n < uint64(200-tc.conns) || x.Latency().Quantile(0.5) <= 0 {
					t.Errorf("%d latencies, median %v", n, x.Latency().Quantile(0.5))
				}
				if x.Received() < 200*128 || s.Received() < 200*128 {
					t.Errorf("the client received %d bytes, the server %d", x.Received(), s.Received())
				}
				if flows := x.Flows(); tc.after == Again && flows != int64(tc.conns) || tc.after == Reconnect && flows < 200 {
					t.Errorf("%d connections", flows)
				}
				// A connection under way when the client stopped may not have reached the server.
				if p := s.Peers(); len(p) != 1 || p[c.from] < x.Flows()-int64(tc.conns) {
					t.Errorf("%d connections, of peers %v", x.Flows(), p)
				}
				wait(t, "the server has no connection", func() bool { return s.Open() == 0 }, nil)
			})
		})
	}
}

func TestHold(t *testing.T) {
	eachFamily(t, func(t *testing.T, c cable) {
		s := c.serveTCP(t, Echo)
		x, err := StartExchanges(c.client, ExchangeSpec{Targets: []netip.AddrPort{c.at}, Conns: 500, Size: 8, After: Hold, Opening: 16})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Stop()
		wait(t, "500 connections", func() bool { return x.Open() == 500 && s.Open() == 500 }, x)
		if x.Done() != 500 || s.Accepted() != 500 {
			t.Errorf("%d exchanges, %d connections", x.Done(), s.Accepted())
		}
	})
}

func TestExchangesFail(t *testing.T) {
	eachFamily(t, func(t *testing.T, c cable) {
		x, err := StartExchanges(c.client, ExchangeSpec{Targets: []netip.AddrPort{c.at}, Conns: 2, Size: 8})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Stop()
		wait(t, "a refusal is an error", func() bool { return x.Err() != nil }, nil)
	})
}

func TestBulk(t *testing.T) {
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprintf("down=%v", down), func(t *testing.T) {
			eachFamily(t, func(t *testing.T, c cable) {
				kind := Sink
				if down {
					kind = Source
				}
				s := c.serveTCP(t, kind)
				b, err := StartBulk(c.client, BulkSpec{Targets: []netip.AddrPort{c.at}, Conns: 3, Down: down})
				if err != nil {
					t.Fatal(err)
				}
				defer b.Stop()
				const much = 16 << 20
				wait(t, "16 MiB", func() bool { return b.Received()+s.Received() >= much }, b)
				b.Stop()
				if b.Err() != nil || s.Err() != nil || b.Flows() != 3 {
					t.Errorf("client: %v, server: %v, %d connections", b.Err(), s.Err(), b.Flows())
				}
				wait(t, "the server has no connection", func() bool { return s.Open() == 0 }, nil)
			})
		})
	}
}

func TestAsking(t *testing.T) {
	eachFamily(t, func(t *testing.T, c cable) {
		s := c.serveUDP(t, Echo)
		a, err := StartAsking(c.client, AskSpec{Targets: []netip.AddrPort{c.at}, Sockets: 4, Size: 64})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Stop()
		wait(t, "200 answers", func() bool { return a.Done() >= 200 }, a)
		a.Stop()
		s.Stop()
		if a.Err() != nil || s.Err() != nil || a.Lost() != 0 || a.Flows() != 4 {
			t.Errorf("client: %v, server: %v, %d lost, %d sockets", a.Err(), s.Err(), a.Lost(), a.Flows())
		}
		if p := s.Peers(); len(p) != 1 || p[c.from] != s.Datagrams() {
			t.Errorf("%d datagrams, of peers %v", s.Datagrams(), p)
		}
	})
}

// A server that says nothing: every datagram is lost, and sent again.
func TestAskingNobody(t *testing.T) {
	eachFamily(t, func(t *testing.T, c cable) {
		s := c.serveUDP(t, Sink)
		a, err := StartAsking(c.client, AskSpec{Targets: []netip.AddrPort{c.at}, Sockets: 2, Size: 64, Timeout: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Stop()
		wait(t, "six are lost", func() bool { return a.Lost() >= 6 && s.Datagrams() >= 8 }, a)
		if a.Done() != 0 {
			t.Errorf("%d answers", a.Done())
		}
	})
}

func TestBurst(t *testing.T) {
	for _, rate := range []int{0, 200_000} {
		t.Run(fmt.Sprint("rate=", rate), func(t *testing.T) {
			eachFamily(t, func(t *testing.T, c cable) {
				s := c.serveUDP(t, Sink)
				const n = 20_000
				sent, took, err := SendBurst(c.client, BurstSpec{Target: c.at, Count: n, Size: 100, Rate: rate})
				if err != nil || sent != n {
					t.Fatalf("sent %d: %v", sent, err)
				}
				if least := time.Duration(n) * time.Second / 200_000 * 8 / 10; rate > 0 && took < least {
					t.Errorf("it took %v, less than %v", took, least)
				}
				wait(t, "all arrive", func() bool { return s.Datagrams() == n }, nil)
				s.Stop()
				if s.Distinct() != n || s.Received() != n*100 {
					t.Errorf("%d different datagrams, %d bytes", s.Distinct(), s.Received())
				}
			})
		})
	}
}
