package health

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

func echoUDP(t *testing.T, h *testnet.Host, port uint16) (end func()) {
	return serveUDP(t, h, port, func(got []byte, _ net.Addr) []string { return []string{string(got)} })
}

// serveUDP answers datagrams on a host until the test ends, or until end.
func serveUDP(t *testing.T, h *testnet.Host, port uint16, answers func(got []byte, from net.Addr) []string) (end func()) {
	t.Helper()
	pc, err := h.ListenPacket("udp", netip.AddrPortFrom(netip.Addr{}, port))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 65535)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			for _, a := range answers(buf[:n], from) {
				_, _ = pc.WriteTo([]byte(a), from)
			}
		}
	}()
	end = func() { _ = pc.Close(); <-done }
	t.Cleanup(end)
	return end
}

func TestProbeUDP(t *testing.T) {
	star := testnet.NewStar(t, 1)
	p, h := proberOn(star.Balancer), star.Backends[0]
	echoUDP(t, h, 53)
	serveUDP(t, h, 54, func([]byte, net.Addr) []string { return nil })
	serveUDP(t, h, 55, func([]byte, net.Addr) []string { return []string{"busy", "", "pong"} })
	serveUDP(t, h, 56, func(got []byte, _ net.Addr) []string {
		if len(got) != 0 {
			t.Errorf("%d bytes were sent, want an empty datagram", len(got))
		}
		return []string{""}
	})
	big := strings.Repeat("0123456789", 6000) // in fragments
	families(t, h, func(t *testing.T, a netip.Addr) {
		for _, c := range []struct {
			name    string
			port    uint16
			check   *check
			result  flow.ProbeResult
			detail  string
			atLeast time.Duration
			atMost  time.Duration
		}{
			{"the answer", 53, checkOf(lb.ProbeUDP, expecting("ping", "ping")), flow.ProbePassed, "", 0, time.Second},
			{"any answer", 53, checkOf(lb.ProbeUDP, expecting("ping", "")), flow.ProbePassed, "", 0, time.Second},
			{"an empty question and answer", 56, checkOf(lb.ProbeUDP), flow.ProbePassed, "", 0, time.Second},
			{"a large one", 53, checkOf(lb.ProbeUDP, expecting(big, big)), flow.ProbePassed, "", 0, time.Second},
			{"others before it", 55, checkOf(lb.ProbeUDP, expecting("", "pong")), flow.ProbePassed, "", 0, time.Second},
			{"only others", 55, checkOf(lb.ProbeUDP, expecting("", "ready"), within(200*time.Millisecond)),
				flow.ProbeBadAnswer, `lacks "ready"`, 200 * time.Millisecond, time.Second},
			{"silence", 54, checkOf(lb.ProbeUDP, expecting("ping", "pong"), within(200*time.Millisecond)),
				flow.ProbeTimeout, "", 200 * time.Millisecond, time.Second},
			{"silence, nothing expected", 54, checkOf(lb.ProbeUDP, within(200*time.Millisecond)),
				flow.ProbePassed, "", 200 * time.Millisecond, time.Second},
			{"a closed port", 9, checkOf(lb.ProbeUDP), flow.ProbeRefused, "port unreachable", 0, time.Second},
			{"a closed port, an answer expected", 9, checkOf(lb.ProbeUDP, expecting("ping", "pong")),
				flow.ProbeRefused, "port unreachable", 0, time.Second},
		} {
			t.Run(c.name, func(t *testing.T) {
				began := time.Now()
				got := p.run(t, c.check, netip.AddrPortFrom(a, c.port))
				took := time.Since(began)
				wantOutcome(t, got, c.result, c.detail)
				if took < c.atLeast || took > c.atMost {
					t.Errorf("took %s, want %s to %s", took, c.atLeast, c.atMost)
				}
			})
		}
	})
}

// A path that turns out to be narrower is not the backend's fault.
func TestProbeUDPNarrowPath(t *testing.T) {
	n := testnet.New(t)
	client, router, server := n.Host("client"), n.Host("router"), n.Host("server")
	router.Forwarding(true)
	near := n.Connect(client, router)
	far := n.Link(router, server, testnet.LinkSpec{MTU: 1280})
	client.DefaultVia(near.B.IP4)
	client.DefaultVia(near.B.IP6)
	server.DefaultVia(far.A.IP4)
	server.DefaultVia(far.A.IP6)
	serveUDP(t, server, 53, func(got []byte, _ net.Addr) []string { return []string{"got it"} })
	families(t, server, func(t *testing.T, a netip.Addr) {
		check := checkOf(lb.ProbeUDP, expecting(strings.Repeat("x", 1400), "got it"), within(3*time.Second))
		wantOutcome(t, proberOn(client).run(t, check, netip.AddrPortFrom(a, 53)), flow.ProbePassed, "")
	})
}
