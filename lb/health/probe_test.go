package health

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// proberOn makes a prober whose sockets are on a host.
func proberOn(h *testnet.Host) *prober { return &prober{dial: h.DialWith} }

// checkOf is a check with a timeout that a test can wait for.
func checkOf(p lb.Probe, change ...func(*lb.HealthCheck)) *check {
	h := lb.DefaultHealth(p)
	h.Timeout = 5 * time.Second
	for _, f := range change {
		f(&h)
	}
	return newCheck(h)
}

func expecting(send, expect string) func(*lb.HealthCheck) {
	return func(h *lb.HealthCheck) { h.Send, h.Expect = send, expect }
}

func within(d time.Duration) func(*lb.HealthCheck) {
	return func(h *lb.HealthCheck) { h.Timeout = d }
}

// run probes once, as a checker does.
func (p *prober) run(t *testing.T, c *check, a netip.AddrPort) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), c.Timeout)
	defer cancel()
	began := time.Now()
	o := p.probe(ctx, target{c, a})
	if d := time.Since(began); d > c.Timeout+time.Second {
		t.Errorf("the probe of %s took %s with a timeout of %s", a, d, c.Timeout)
	}
	return o
}

// families runs f for both addresses of a host.
func families(t *testing.T, h *testnet.Host, f func(*testing.T, netip.Addr)) {
	t.Helper()
	t.Run("IPv4", func(t *testing.T) { f(t, h.IP4) })
	t.Run("IPv6", func(t *testing.T) { f(t, h.IP6) })
}

func wantOutcome(t *testing.T, got outcome, result flow.ProbeResult, detail string) {
	t.Helper()
	if got.result != result || !strings.Contains(got.detail, detail) {
		t.Errorf("%s %q, want %s %q", got.result, got.detail, result, detail)
	}
}

func TestProbeTCP(t *testing.T) {
	star := testnet.NewStar(t, 1)
	p, h := proberOn(star.Balancer), star.Backends[0]
	var ends atomic.Int32
	h.Serve(80, func(c net.Conn) {
		defer ends.Add(1)
		testnet.Sink(c)
	})
	h.Serve(81, testnet.Named("smtp ready"))
	h.Serve(82, testnet.Reset)
	h.Serve(83, func(c net.Conn) { _, _ = io.Copy(c, strings.NewReader(strings.Repeat("x", 2*maxAnswer))) })
	h.Serve(84, func(net.Conn) {})
	families(t, h, func(t *testing.T, a netip.Addr) {
		for _, c := range []struct {
			name   string
			port   uint16
			check  *check
			result flow.ProbeResult
			detail string
		}{
			{"accepts", 80, checkOf(lb.ProbeTCP), flow.ProbePassed, ""},
			{"nobody listens", 9, checkOf(lb.ProbeTCP), flow.ProbeRefused, "connection refused"},
			{"the banner", 81, checkOf(lb.ProbeTCP, expecting("", "ready")), flow.ProbePassed, ""},
			{"an answer", 81, checkOf(lb.ProbeTCP, expecting("hello?\n", "hello?")), flow.ProbePassed, ""},
			{"another banner", 81, checkOf(lb.ProbeTCP, expecting("", "imap"), within(100*time.Millisecond)), flow.ProbeTimeout, ""},
			{"no banner", 80, checkOf(lb.ProbeTCP, expecting("", "x"), within(100*time.Millisecond)), flow.ProbeTimeout, ""},
			{"resets", 82, checkOf(lb.ProbeTCP, expecting("", "x")), flow.ProbeReset, "reset"},
			{"endless", 83, checkOf(lb.ProbeTCP, expecting("", "y")), flow.ProbeBadAnswer, `lacks "y"`},
			{"closes", 84, checkOf(lb.ProbeTCP, expecting("", "y")), flow.ProbeBadAnswer, `lacks "y"`},
		} {
			t.Run(c.name, func(t *testing.T) {
				got := p.run(t, c.check, netip.AddrPortFrom(a, c.port))
				wantOutcome(t, got, c.result, c.detail)
			})
		}
	})
	testnet.Eventually(t, 5*time.Second, "the backend sees every probe end", func() error {
		if n := ends.Load(); n != 4 {
			return fmt.Errorf("%d of 4 connections have ended", n)
		}
		return nil
	})
}

func TestProbeUnreachable(t *testing.T) {
	star := testnet.NewStar(t, 1)
	check := checkOf(lb.ProbeTCP, within(300*time.Millisecond))
	for _, a := range []string{"198.51.100.1:80", "[2001:db8::1]:80"} {
		// The balancer has no route; it tells the client so by ICMP.
		wantOutcome(t, proberOn(star.Balancer).run(t, check, netip.MustParseAddrPort(a)), flow.ProbeUnreachable, "unreachable")
		got := proberOn(star.Client).run(t, checkOf(lb.ProbeUDP), netip.MustParseAddrPort(a))
		wantOutcome(t, got, flow.ProbeUnreachable, "unreachable")
	}
	star.Backends[0].Serve(80, testnet.Sink)
	star.Backends[0].Mute()
	families(t, star.Backends[0], func(t *testing.T, a netip.Addr) {
		wantOutcome(t, proberOn(star.Balancer).run(t, check, netip.AddrPortFrom(a, 80)), flow.ProbeTimeout, "")
	})
}

// Probes come from where they are told to, and try another port when one is taken.
func TestProbeDialLocal(t *testing.T) {
	star := testnet.NewStar(t, 1)
	h := star.Backends[0]
	link := star.BackendLinks[0].A
	star.Balancer.AddAddr(link.Dev, netip.MustParsePrefix("10.202.1.77/24"))
	star.Balancer.AddAddr(link.Dev, netip.MustParsePrefix("fd00:202:1::77/64"))
	h.Serve(80, func(c net.Conn) { fmt.Fprintf(c, "%s\n", c.RemoteAddr()) })
	serveUDP(t, h, 80, func(_ []byte, from net.Addr) []string { return []string{from.String()} })
	second := map[bool]netip.Addr{true: netip.MustParseAddr("10.202.1.77"), false: netip.MustParseAddr("fd00:202:1::77")}
	families(t, h, func(t *testing.T, a netip.Addr) {
		to := netip.AddrPortFrom(a, 80)
		local := second[a.Is4()]
		taken, err := star.Balancer.Listen("tcp", netip.AddrPortFrom(local, 40001))
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		takenUDP, err := star.Balancer.ListenPacket("udp", netip.AddrPortFrom(local, 40001))
		if err != nil {
			t.Fatal(err)
		}
		defer takenUDP.Close()
		for _, c := range []struct {
			name   string
			local  []netip.AddrPort
			expect string
		}{
			{"address", []netip.AddrPort{netip.AddrPortFrom(local, 0)}, local.String()},
			{"port", []netip.AddrPort{netip.AddrPortFrom(netip.Addr{}, 40002)}, ":40002"},
			{"both", []netip.AddrPort{netip.AddrPortFrom(local, 40003)}, netip.AddrPortFrom(local, 40003).String()},
			{"a port that is taken", []netip.AddrPort{netip.AddrPortFrom(local, 40001), netip.AddrPortFrom(local, 40004)}, ":40004"},
			{"no wish", []netip.AddrPort{{}}, "10.202.1.1"},
		} {
			if c.name == "no wish" && !a.Is4() {
				continue
			}
			for _, kind := range []lb.Probe{lb.ProbeTCP, lb.ProbeUDP} {
				asked := 0
				p := proberOn(star.Balancer)
				p.local = func(netip.AddrPort) netip.AddrPort {
					asked++
					return c.local[min(asked, len(c.local))-1]
				}
				got := p.run(t, checkOf(kind, expecting("", c.expect), within(2*time.Second)), to)
				if got != passed {
					t.Errorf("%s, %s: %+v", kind, c.name, got)
				}
			}
		}
		p := proberOn(star.Balancer)
		p.local = func(netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(local, 40001) }
		wantOutcome(t, p.run(t, checkOf(lb.ProbeTCP), to), flow.ProbeLocal, "in use")
	})
}

// A probe leaves no connection in TIME_WAIT behind.
func TestProbeLeavesNothing(t *testing.T) {
	star := testnet.NewStar(t, 1)
	star.Backends[0].Serve(80, testnet.Named("x"))
	families(t, star.Backends[0], func(t *testing.T, a netip.Addr) {
		for range 5 {
			if got := proberOn(star.Balancer).run(t, checkOf(lb.ProbeTCP), netip.AddrPortFrom(a, 80)); got != passed {
				t.Fatalf("%+v", got)
			}
		}
	})
	for _, h := range []*testnet.Host{star.Balancer, star.Backends[0]} {
		testnet.Eventually(t, 5*time.Second, h.Name()+" has no connection left", func() error {
			out, err := h.Command(t.Context(), "cat", "/proc/net/tcp", "/proc/net/tcp6").Output()
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(out)) {
				if f := strings.Fields(line); len(f) > 3 && f[3] != "0A" && f[3] != "st" {
					return fmt.Errorf("still there: %s", line)
				}
			}
			return nil
		})
	}
}

func TestReason(t *testing.T) {
	at := func(port uint16, path string) func(*lb.HealthCheck) {
		return func(h *lb.HealthCheck) { h.Port, h.Path, h.Timeout = port, path, time.Second }
	}
	for _, c := range []struct {
		o     outcome
		check *check
		want  string
	}{
		{outcome{flow.ProbeRefused, "connection refused"}, checkOf(lb.ProbeTCP), "connection refused: tcp probe"},
		{outcome{flow.ProbeBadStatus, "status 503"}, checkOf(lb.ProbeHTTP, at(0, "/ok")), "status 503: http probe of /ok"},
		{outcome{result: flow.ProbeTimeout}, checkOf(lb.ProbeHTTP, at(81, "/")), "no answer within 1s: http probe of / at port 81"},
		{lacks("pong"), checkOf(lb.ProbeUDP, at(53, "/")), `the answer lacks "pong": udp probe at port 53`},
		{refused, checkOf(lb.ProbeTCP), "refused: tcp probe"},
	} {
		if got := c.o.reason(c.check); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
