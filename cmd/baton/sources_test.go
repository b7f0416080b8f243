package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// cluster is hosts whose clients are told apart: the balancer serves steps, with one backend.
type cluster struct {
	*testnet.Star
	other *testnet.Host // a second client
	known stepHost
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	star := testnet.NewStar(t, 1)
	s := &cluster{Star: star, other: star.AddClient("other")}
	for key, value := range map[string]string{"net.ipv4.icmp_ratelimit": "0", "net.ipv6.icmp.ratelimit": "0"} {
		s.Balancer.Sysctl(key, value)
	}
	both := func(h *testnet.Host) []netip.Addr { return []netip.Addr{h.IP4, h.IP6} }
	b := star.Backends[0]
	s.known = stepHost{Own: both(s.Balancer), Client: both(s.Client), Other: both(s.other), Backends: both(b)}
	b.Serve(stepPort, testnet.Named("backend"))
	for _, a := range s.known.Backends {
		b.ServeUDP(netip.AddrPortFrom(a, stepPort), testnet.NamedUDP("backend"))
	}
	return s
}

// What a client may hear.
var (
	errRefusal    = errors.New("refusal")
	errSilence    = errors.New("silence")
	errAfterwards = errors.New("a connection that is reset, or a datagram without an answer")
)

// How long a client waits for what must come, and before it calls it silence.
const (
	answerWithin = 10 * time.Second
	silenceAfter = 400 * time.Millisecond
)

// askFrom says who answers a client, from one of its addresses if that is valid.
func askFrom(from *testnet.Host, local netip.Addr, k lb.FrontendKey, within time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	c, err := from.DialContext(ctx, k.Proto.String(), netip.AddrPortFrom(local, 0), k.Address)
	if err != nil {
		return "", heard(err)
	}
	defer c.Close()
	if k.Proto == flow.UDP {
		return askUDP(ctx, c)
	}
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	name, err := testnet.ReadName(c)
	if err != nil { // it has been open
		return name, fmt.Errorf("%w: %w", errAfterwards, err)
	}
	return name, nil
}

// askUDP asks again when it hears nothing: a datagram may get lost.
func askUDP(ctx context.Context, c net.Conn) (string, error) {
	buf := make([]byte, 64)
	for {
		if _, err := c.Write([]byte("?")); err != nil {
			return "", heard(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(silenceAfter))
		n, err := c.Read(buf)
		if err = heard(err); err != errSilence || ctx.Err() != nil {
			return string(buf[:n]), err
		}
	}
}

func heard(err error) error {
	var timeout net.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return errRefusal
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return errSilence
	case errors.Is(err, unix.ECONNRESET):
		return errAfterwards
	}
	return err
}

// expectAt wants the backend's answer, or an error, for both protocols at addresses. It asks at all of them at once: to
// hear nothing takes time.
func expectAt(t *testing.T, when string, from *testnet.Host, want error, at ...string) {
	t.Helper()
	var asking sync.WaitGroup
	defer asking.Wait()
	for _, text := range at {
		for _, proto := range []flow.Proto{flow.TCP, flow.UDP} {
			k := lb.FrontendKey{Proto: proto, Address: netip.MustParseAddrPort(text)}
			asking.Go(func() {
				within := answerWithin
				if want == errSilence {
					within = silenceAfter
				}
				name, err := askFrom(from, netip.Addr{}, k, within)
				if !errors.Is(err, want) || want == nil && name != "backend" {
					t.Errorf("%s: %s asks %s: got %q, %v; want %v", when, from.Name(), k, name, err, want)
				}
			})
		}
	}
}

var sourcesVIPs = []string{"10.96.0.20:80", "[fd96::20]:80"}

func sourcesAllowed(h *stepHost) []lb.Service {
	return []lb.Service{h.service("web", func(fe *lb.Frontend) { fe.AllowSources = single(h.Client) }, sourcesVIPs...)}
}

func sourcesNoBackends(h *stepHost) []lb.Service {
	all := sourcesAllowed(h)
	all[0].Backends = nil
	return all
}

// TestSourceRanges: clients that a frontend does not allow hear nothing, whether there are backends or not. Without a
// guard they are reset once they have connected.
func TestSourceRanges(t *testing.T) {
	s := newCluster(t)
	serve := serveSteps(t, s.Balancer, "sources", true, s.known)
	expectAt(t, "allowed", s.Client, nil, sourcesVIPs...)
	expectAt(t, "not allowed", s.other, errSilence, sourcesVIPs...)
	expectAt(t, "not allowed, this host", s.Balancer, errSilence, sourcesVIPs...)
	serve.next()
	expectAt(t, "no backends, allowed", s.Client, errRefusal, sourcesVIPs...)
	expectAt(t, "no backends, not allowed", s.other, errSilence, sourcesVIPs...)
}

func TestSourceRangesWithoutAGuard(t *testing.T) {
	s := newCluster(t)
	serveSteps(t, s.Balancer, "sources", false, s.known)
	expectAt(t, "allowed", s.Client, nil, sourcesVIPs...)
	for _, text := range sourcesVIPs {
		at := netip.MustParseAddrPort(text)
		if name, err := askFrom(s.other, netip.Addr{}, lb.FrontendKey{Proto: flow.TCP, Address: at}, answerWithin); !errors.Is(err, errAfterwards) {
			t.Errorf("TCP: got %q, %v", name, err)
		}
		if name, err := askFrom(s.other, netip.Addr{}, lb.FrontendKey{Proto: flow.UDP, Address: at}, silenceAfter); !errors.Is(err, errSilence) {
			t.Errorf("UDP: got %q, %v", name, err)
		}
	}
}

var insideVIPs = []string{"10.96.0.30:80", "[fd96::30]:80"}

// insideOnly is a service of policy Local whose only backend is elsewhere.
func insideOnly(h *stepHost) []lb.Service {
	return []lb.Service{h.service("local", func(fe *lb.Frontend) {
		fe.Subset, fe.WhenNone, fe.Inside = lb.LocalBackends, lb.Drop, single(h.Other)
	}, insideVIPs...)}
}

func insideAndLocal(h *stepHost) []lb.Service {
	all := insideOnly(h)
	for i := range all[0].Backends {
		all[0].Backends[i].Local = true
	}
	return all
}

func insideNone(h *stepHost) []lb.Service {
	all := insideOnly(h)
	all[0].Backends = nil
	for i := range all[0].Frontends {
		all[0].Frontends[i].WhenNone = lb.Refuse
	}
	return all
}

// TestClientsInside: where no backend is local, clients of the cluster and the host itself are served, by whichever address
// it has by then, and all others are dropped.
func TestClientsInside(t *testing.T) {
	for _, guarded := range []bool{true, false} {
		t.Run(fmt.Sprintf("guarded %t", guarded), func(t *testing.T) {
			s := newCluster(t)
			serve := serveSteps(t, s.Balancer, "inside", guarded, s.known)
			expectAt(t, "inside", s.other, nil, insideVIPs...)
			expectAt(t, "this host", s.Balancer, nil, insideVIPs...)
			if guarded {
				expectAt(t, "outside", s.Client, errSilence, insideVIPs...)
			}
			for _, p := range []string{"192.0.2.99/32", "2001:db8::99/128"} {
				own := netip.MustParsePrefix(p)
				s.Balancer.AddAddr("lo", own)
				at := netip.MustParseAddrPort(insideVIPs[0])
				if own.Addr().Is6() {
					at = netip.MustParseAddrPort(insideVIPs[1])
				}
				for _, proto := range []flow.Proto{flow.TCP, flow.UDP} {
					testnet.Eventually(t, 10*time.Second, "the new address is the host's own", func() error {
						_, err := askFrom(s.Balancer, own.Addr(), lb.FrontendKey{Proto: proto, Address: at}, silenceAfter)
						return err
					})
				}
			}
			serve.next()
			for _, from := range []*testnet.Host{s.Client, s.other, s.Balancer} {
				expectAt(t, "a local backend", from, nil, insideVIPs...)
			}
			serve.next()
			for _, from := range []*testnet.Host{s.Client, s.other, s.Balancer} {
				expectAt(t, "no backend anywhere", from, errRefusal, insideVIPs...)
			}
		})
	}
}
