package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/pick"
	"github.com/baton-lb/baton/lb/relay"
	"github.com/baton-lb/baton/lb/store"
	"github.com/baton-lb/baton/offload/bpf"
)

// A relay, with or without a guard, in a process of its own on a host: what it serves is a list of steps by name.

// steps has what is served at each step; nil is nothing. "taken" cannot be served at first.
var steps = map[string][]func(*stepHost) []lb.Service{
	"empty":     {emptyService},
	"sources":   {sourcesAllowed, sourcesNoBackends},
	"inside":    {insideOnly, insideAndLocal, insideNone},
	"nodeports": {nodePortsServed, nodePortsRefuse, nodePortsDrop, nodePortsInside, nil, nodePortsServed},
	"taken":     {nodePortsServed},
	"own":       {ownAddress, ownAddressAndNodePort, nodePortThenOwn, ownAddressEmpty},
}

// stepHost is what the steps know of the hosts.
type stepHost struct {
	Own, Client, Other []netip.Addr // of the host itself, a client, another client: IPv4, IPv6
	Backends           []netip.Addr // of both families
}

const stepPort = 8080 // of backends

// service is one with frontends for both protocols at addresses, "10.96.0.10:80", and every backend, changed by change.
func (h *stepHost) service(name string, change func(*lb.Frontend), at ...string) lb.Service {
	s := lb.Default(name)
	for _, text := range at {
		for _, proto := range []flow.Proto{flow.TCP, flow.UDP} {
			fe := lb.Frontend{FrontendKey: lb.FrontendKey{Proto: proto, Address: netip.MustParseAddrPort(text)}, SameFamily: true}
			if change != nil {
				change(&fe)
			}
			s.Frontends = append(s.Frontends, fe)
		}
	}
	for _, a := range h.Backends {
		s.Backends = append(s.Backends, lb.Backend{Address: netip.AddrPortFrom(a, stepPort), Weight: 1})
	}
	return s
}

// single are prefixes of one address each.
func single(addrs []netip.Addr) (all []netip.Prefix) {
	for _, a := range addrs {
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	return all
}

// stepping is the process that serves steps.
type stepping struct {
	t     *testing.T
	in    io.Writer
	lines *bufio.Scanner
}

// next goes on to the next step.
func (s *stepping) next() {
	s.t.Helper()
	if _, err := io.WriteString(s.in, "next\n"); err != nil {
		s.t.Fatal(err)
	}
	s.wait()
}

// wait waits until a step is served.
func (s *stepping) wait() {
	s.t.Helper()
	for s.lines.Scan() {
		if s.lines.Text() == "serving" {
			return
		}
		s.t.Log(s.lines.Text())
	}
	s.t.Fatal("the relay has ended")
}

// serveSteps serves steps on a host, from the first one on, until the test ends.
func serveSteps(t *testing.T, host *testnet.Host, name string, guarded bool, known ...stepHost) *stepping {
	t.Helper()
	about, err := json.Marshal(known)
	if err != nil {
		t.Fatal(err)
	}
	cmd := host.TestProcess(context.Background(), "TestServeSteps",
		"SERVE_STEPS="+name, fmt.Sprintf("SERVE_GUARDED=%t", guarded), "SERVE_HOSTS="+string(about))
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
	s := &stepping{t: t, in: in, lines: bufio.NewScanner(out)}
	t.Cleanup(func() {
		_ = in.Close()
		for s.lines.Scan() {
			if text := s.lines.Text(); text != "PASS" && !strings.HasPrefix(text, "coverage:") {
				t.Log(text)
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	s.wait()
	return s
}

// TestServeSteps is the process of serveSteps.
func TestServeSteps(t *testing.T) {
	name := os.Getenv("SERVE_STEPS")
	if name == "" {
		return
	}
	var known []stepHost
	if err := json.Unmarshal([]byte(os.Getenv("SERVE_HOSTS")), &known); err != nil {
		t.Fatal(err)
	}
	host := new(stepHost)
	if len(known) > 0 {
		host = &known[0]
	}
	registry := flow.NewRegistry(flow.Options{})
	s := store.New(store.Options{Registry: registry})
	o := relay.Options{Store: s, Picker: pick.New(pick.Options{}), Registry: registry, StateDir: t.TempDir()}
	if os.Getenv("SERVE_GUARDED") == "true" {
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
	commands := bufio.NewScanner(os.Stdin)
	for _, step := range steps[name] {
		var services []lb.Service
		if step != nil {
			services = step(host)
		}
		if err := s.Source("test").Replace(services); err != nil {
			t.Fatal(err)
		}
		if err := s.Programmed(ctx, s.Snapshot().Revision); err != nil {
			t.Fatal(err)
		}
		if f := s.Failures(); (len(f) > 0) != (name == "taken") {
			t.Fatal(f)
		}
		fmt.Println("serving")
		if !commands.Scan() {
			break
		}
	}
}
