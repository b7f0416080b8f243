package health

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// live makes the probes of a world real, from a host.
func (w *world) live(h *testnet.Host) {
	w.answersUntil(proberOn(h).probe)
}

func (w *world) eventually(want string) {
	w.t.Helper()
	testnet.Eventually(w.t, 10*time.Second, "backends "+want, func() error {
		if got := w.picture("web"); got != want {
			return fmt.Errorf("backends %s", got)
		}
		return nil
	})
}

// Servers are killed and come back, a host vanishes and comes back: TCP, HTTP
// and UDP probes see it, in both families.
func TestServersComeAndGo(t *testing.T) {
	star := testnet.NewStar(t, 2)
	quick := func(p lb.Probe) lb.HealthCheck {
		h := lb.DefaultHealth(p)
		h.Interval, h.Timeout = 50*time.Millisecond, 40*time.Millisecond
		h.Expect = map[lb.Probe]string{lb.ProbeTCP: "GET", lb.ProbeUDP: "pong"}[p] // HTTP's answer is its status
		h.Send = map[lb.Probe]string{lb.ProbeTCP: "GET", lb.ProbeUDP: "pong"}[p]
		return h
	}
	for _, c := range []struct {
		probe lb.Probe
		serve func(h *testnet.Host) (kill func())
	}{
		{lb.ProbeTCP, func(h *testnet.Host) func() { return h.Serve(80, testnet.Echo).Kill }},
		{lb.ProbeHTTP, func(h *testnet.Host) func() { return h.Serve(80, answerOK).Kill }},
		{lb.ProbeUDP, func(h *testnet.Host) func() { return echoUDP(t, h, 80) }},
	} {
		t.Run(string(c.probe), func(t *testing.T) {
			w := newWorld(t, Options{})
			defer w.stop()
			w.live(star.Balancer)
			svc := web(0)
			for _, h := range star.Backends {
				for _, a := range []netip.Addr{h.IP4, h.IP6} {
					svc.Backends = append(svc.Backends, lb.Backend{Address: netip.AddrPortFrom(a, 80), Weight: 1})
				}
			}
			kill := c.serve(star.Backends[0])
			killOther := c.serve(star.Backends[1])
			w.put(svc, quick(c.probe))
			w.eventually("++++")
			kill()
			w.eventually("--++")
			kill = c.serve(star.Backends[0])
			w.eventually("++++")
			star.Backends[1].Mute()
			w.eventually("++--")
			star.Backends[1].Unmute()
			w.eventually("++++")
			kill()
			killOther()
			w.eventually("----")
			if st := w.store.FrontendStatus(svc.Frontends[0].FrontendKey); st.Reason == "" {
				t.Error("the status does not say that all are used")
			}
		})
	}
}
