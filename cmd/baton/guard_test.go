package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/admin/doctor"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// Frontends without backends, by policy, with both protocols at each.
var emptyVIPs = map[string]lb.NonePolicy{
	"10.96.0.10": lb.Refuse, "fd96::10": lb.Refuse, "10.96.0.11": lb.Drop, "fd96::11": lb.Drop,
}

const emptyPort = 80

func emptyService(*stepHost) []lb.Service {
	empty := lb.Default("empty")
	for text, policy := range emptyVIPs {
		for _, proto := range []flow.Proto{flow.TCP, flow.UDP} {
			empty.Frontends = append(empty.Frontends, lb.Frontend{
				FrontendKey: lb.FrontendKey{Proto: proto, Address: netip.AddrPortFrom(netip.MustParseAddr(text), emptyPort)},
				WhenNone:    policy,
			})
		}
	}
	return []lb.Service{empty}
}

// TestNoBackends: a frontend without backends refuses at once or stays silent, as its policy says, with a guard and
// without, also where another program has the port on the wildcard address.
func TestNoBackends(t *testing.T) {
	for _, guarded := range []bool{true, false} {
		t.Run(fmt.Sprintf("guarded %t", guarded), func(t *testing.T) {
			star := testnet.NewStar(t, 0)
			star.Balancer.Sysctl("net.ipv4.icmp_ratelimit", "0")
			star.Balancer.Sysctl("net.ipv6.icmp.ratelimit", "0")
			serveSteps(t, star.Balancer, "empty", guarded)
			if guarded {
				star.Balancer.Serve(emptyPort, testnet.Named("somebody else"))
			}
			for text, policy := range emptyVIPs {
				at := netip.AddrPortFrom(netip.MustParseAddr(text), emptyPort)
				for _, from := range []*testnet.Host{star.Client, star.Balancer} {
					for _, network := range []string{"tcp", "udp"} {
						got := knock(t, from, network, at)
						if policy == lb.Refuse && !errors.Is(got, syscall.ECONNREFUSED) {
							t.Errorf("%s at %s %s: %v, want a refusal", from.Name(), network, at, got)
						}
						var timeout net.Error
						if policy == lb.Drop && (!errors.As(got, &timeout) || !timeout.Timeout()) {
							t.Errorf("%s at %s %s: %v, want silence", from.Name(), network, at, got)
						}
					}
				}
			}
		})
	}
}

// knock says what a client hears within a short time.
func knock(t *testing.T, from *testnet.Host, network string, at netip.AddrPort) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	c, err := from.DialContext(ctx, network, netip.AddrPort{}, at)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := c.Write([]byte("?")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 16))
	return err
}

func TestFeatureFindings(t *testing.T) {
	for _, p := range kernelProbes() {
		if f := p.Run(); p.Name == "" || f.Answer != doctor.Present && f.Todo == "" && f.Detail == "" {
			t.Errorf("%s: %+v", p.Name, f)
		}
	}
}
