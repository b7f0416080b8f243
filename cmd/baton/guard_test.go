package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/admin/doctor"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/pick"
	"github.com/baton-lb/baton/lb/relay"
	"github.com/baton-lb/baton/lb/store"
	"github.com/baton-lb/baton/offload/bpf"
)

// Frontends without backends, by policy, with both protocols at each.
var emptyVIPs = map[string]lb.NonePolicy{
	"10.96.0.10": lb.Refuse, "fd96::10": lb.Refuse, "10.96.0.11": lb.Drop, "fd96::11": lb.Drop,
}

const emptyPort = 80

// TestNoBackends: a frontend without backends refuses at once or stays silent, as its policy says, with a guard and
// without, also where another program has the port on the wildcard address.
func TestNoBackends(t *testing.T) {
	for _, guarded := range []bool{true, false} {
		t.Run(fmt.Sprintf("guarded %t", guarded), func(t *testing.T) {
			star := testnet.NewStar(t, 0)
			star.Balancer.Sysctl("net.ipv4.icmp_ratelimit", "0")
			star.Balancer.Sysctl("net.ipv6.icmp.ratelimit", "0")
			serveEmpty(t, star.Balancer, guarded)
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

// serveEmpty serves the frontends on a host until the test ends.
func serveEmpty(t *testing.T, host *testnet.Host, guarded bool) {
	t.Helper()
	cmd := host.TestProcess(context.Background(), "TestServeEmpty", fmt.Sprintf("SERVE_EMPTY=%t", guarded))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	t.Cleanup(func() {
		_ = in.Close()
		reading.Wait()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "serving" {
		t.Log(lines.Text())
	}
	reading.Go(func() {
		for lines.Scan() {
			if text := lines.Text(); text != "PASS" && !strings.HasPrefix(text, "coverage:") {
				t.Log(text)
			}
		}
	})
}

// TestServeEmpty is the process of TestNoBackends.
func TestServeEmpty(t *testing.T) {
	mode := os.Getenv("SERVE_EMPTY")
	if mode == "" {
		return
	}
	registry := flow.NewRegistry(flow.Options{})
	s := store.New(store.Options{Registry: registry})
	o := relay.Options{Store: s, Picker: pick.New(pick.Options{}), Registry: registry}
	if mode == "true" {
		b, err := bpf.AttachGuard(bpf.GuardOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		o.Guard = guard{bpf: b}
	}
	r, err := relay.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer stop()
	empty := lb.Default("empty")
	for text, policy := range emptyVIPs {
		for _, proto := range []flow.Proto{flow.TCP, flow.UDP} {
			empty.Frontends = append(empty.Frontends, lb.Frontend{
				FrontendKey: lb.FrontendKey{Proto: proto, Address: netip.AddrPortFrom(netip.MustParseAddr(text), emptyPort)},
				WhenNone:    policy,
			})
		}
	}
	if err := s.Source("test").Replace([]lb.Service{empty}); err != nil {
		t.Fatal(err)
	}
	if err := s.Programmed(ctx, s.Snapshot().Revision); err != nil {
		t.Fatal(err)
	}
	if f := s.Failures(); len(f) > 0 {
		t.Fatal(f)
	}
	fmt.Println("serving")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestFeatureFindings(t *testing.T) {
	for _, p := range kernelProbes() {
		if f := p.Run(); p.Name == "" || f.Answer != doctor.Present && f.Todo == "" && f.Detail == "" {
			t.Errorf("%s: %+v", p.Name, f)
		}
	}
}
