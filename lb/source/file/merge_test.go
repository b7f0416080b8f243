package file

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/lb"
)

// parsed is the service of a file with one.
func parsed(t *testing.T, file string) lb.Service {
	t.Helper()
	cfg, err := Parse("baton.yaml", []byte(file))
	if err != nil {
		t.Fatalf("%s\n%v", file, err)
	}
	if len(cfg.Services) != 1 {
		t.Fatalf("%d services", len(cfg.Services))
	}
	return cfg.Services[0]
}

func TestDefaultsMerge(t *testing.T) {
	for _, c := range []struct {
		name, defaults, service string
		got                     func(s *lb.Service) any
		want                    any
	}{
		{"taken", "balance: random", "",
			func(s *lb.Service) any { return s.Balance }, lb.Random},
		{"overridden", "balance: random", "balance: maglev",
			func(s *lb.Service) any { return s.Balance }, lb.Maglev},
		{"overridden by the built-in default", "balance: random", "balance: round-robin",
			func(s *lb.Service) any { return s.Balance }, lb.RoundRobin},
		{"maps merge by key", "timeouts: {connect: 9s, idle: 9m}", "timeouts: {connect: 1s}",
			func(s *lb.Service) any {
				return [3]time.Duration{s.Timeouts.Connect, s.Timeouts.Idle, s.Timeouts.HalfClosed}
			},
			[3]time.Duration{time.Second, 9 * time.Minute, time.Minute}},
		{"lists replace", "allow: [10.0.0.0/8, 11.0.0.0/8]", "allow: [12.0.0.0/8]",
			func(s *lb.Service) any { return fmt.Sprint(s.Allow) }, "[12.0.0.0/8]"},
		{"an empty list replaces", "allow: [10.0.0.0/8]", "allow: []",
			func(s *lb.Service) any { return len(s.Allow) }, 0},
		{"0 replaces", "limits: {connections: 5, perClient: 6}", "limits: {connections: 0}",
			func(s *lb.Service) any { return s.Limits }, lb.Limits{PerClient: 6}},
		{"affinity", "affinity: {timeout: 1h}", "",
			func(s *lb.Service) any { return s.Affinity }, lb.Affinity{By: lb.ByClientIP, Timeout: time.Hour}},
		{"affinity merges", "affinity: {timeout: 1h}", "affinity: {by: client-ip}",
			func(s *lb.Service) any { return s.Affinity }, lb.Affinity{By: lb.ByClientIP, Timeout: time.Hour}},
		{"affinity off", "affinity: {timeout: 1h}", "affinity: none",
			func(s *lb.Service) any { return s.Affinity }, lb.Affinity{}},
		{"affinity off by its key", "affinity: {timeout: 1h}", "affinity: {by: none}",
			func(s *lb.Service) any { return s.Affinity }, lb.Affinity{}},
		{"affinity with nothing said", "", "affinity: {}",
			func(s *lb.Service) any { return s.Affinity }, lb.Affinity{By: lb.ByClientIP, Timeout: 3 * time.Hour}},
		{"health off", "health: none", "health: {probe: none}",
			func(s *lb.Service) any { return s.Health }, lb.HealthCheck{}},
		{"slow start without a probe", "health: {probe: none, slowStart: 5s}", "",
			func(s *lb.Service) any { return s.Health }, lb.HealthCheck{SlowStart: 5 * time.Second}},
		{"no slow start", "health: {probe: none, slowStart: 5s}", "health: {probe: none, slowStart: 0s}",
			func(s *lb.Service) any { return s.SlowStart() }, time.Duration(0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := parsed(t, "defaults: {"+c.defaults+"}\n"+one(c.service))
			if got := c.got(&s); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
			s = parsed(t, one(c.service)+"defaults: {"+c.defaults+"}\n") // the order in the file does not matter
			if got := c.got(&s); got != c.want {
				t.Errorf("defaults last: got %v, want %v", got, c.want)
			}
		})
	}
}

// Health checks are not built yet, so their defaults are looked at below Parse.
func TestHealthDefaults(t *testing.T) {
	for _, c := range []struct {
		defaults, service string
		want              lb.HealthCheck
	}{
		{"", "health: {}", lb.DefaultHealth(lb.ProbeTCP)},
		{"health: {interval: 5s}", "", lb.HealthCheck{
			Probe: lb.ProbeTCP, Interval: 5 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3, Path: "/", Status: "200-399"}},
		{"health: {interval: 5s, rise: 4}", "health: {probe: http, status: 204, interval: 3s, port: 8081, host: x, path: /ok, expect: yes}",
			lb.HealthCheck{Probe: lb.ProbeHTTP, Interval: 3 * time.Second, Timeout: time.Second, Rise: 4, Fall: 3, Port: 8081,
				Path: "/ok", Host: "x", Status: "204", Expect: "yes"}},
		{"health: {probe: udp, send: \"\\0ping\"}", "health: {status: \"200, 204,300-399\"}", lb.HealthCheck{
			Probe: lb.ProbeUDP, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3, Path: "/",
			Status: "200, 204,300-399", Send: "\x00ping"}},
		{"health: {interval: 5s}", "health: none", lb.HealthCheck{}},
	} {
		got := lb.Default("")
		d := &decoder{budget: maxAliased}
		for _, part := range []string{c.defaults, c.service} {
			root, bad := readTree("f", []byte("{"+part+"}"))
			if bad != nil {
				t.Fatal(bad)
			}
			decodeMap(d, root, policyFields, &got)
		}
		if got.Health != c.want || len(d.faults) > 0 {
			t.Errorf("%s + %s: got %+v, %v", c.defaults, c.service, got.Health, d.faults)
		}
	}
}

func TestScalars(t *testing.T) {
	for _, c := range []struct {
		keys []string
		got  func(s *lb.Service) any
		want any
	}{
		{[]string{"drainTimeout: 0"}, func(s *lb.Service) any { return s.DrainTimeout }, time.Duration(0)},
		{[]string{"drainTimeout: 1h2m3s4ms"}, func(s *lb.Service) any { return s.DrainTimeout }, 3723004 * time.Millisecond},
		{[]string{"drainTimeout: \"1.5s\""}, func(s *lb.Service) any { return s.DrainTimeout }, 1500 * time.Millisecond},
		{[]string{"offload: {afterBytes: 0}"}, func(s *lb.Service) any { return s.Offload.AfterBytes }, int64(0)},
		{[]string{"offload: {afterBytes: 4096}"}, func(s *lb.Service) any { return s.Offload.AfterBytes }, int64(4096)},
		{[]string{"offload: {afterBytes: 7B}"}, func(s *lb.Service) any { return s.Offload.AfterBytes }, int64(7)},
		{[]string{"offload: {afterBytes: 10MB}"}, func(s *lb.Service) any { return s.Offload.AfterBytes }, int64(10_000_000)},
		{[]string{"offload: {afterBytes: \"2GiB\"}"}, func(s *lb.Service) any { return s.Offload.AfterBytes }, int64(2 << 30)},
		{[]string{"allow: [\"::ffff:10.0.0.1\"]"}, func(s *lb.Service) any { return s.Allow[0] }, netip.MustParsePrefix("10.0.0.1/32")},
		{[]string{"allow: [\"fd00::1\"]"}, func(s *lb.Service) any { return s.Allow[0] }, netip.MustParsePrefix("fd00::1/128")},
		{[]string{"backends: [{address: \"10.0.0.1:1\", state: ready}]"}, func(s *lb.Service) any { return s.Backends[0].State }, lb.StateReady},
		{[]string{"backends: [{address: \"10.0.0.1:1\", weight: 0}]"}, func(s *lb.Service) any { return s.Backends[0].Weight }, uint16(0)},
		{[]string{"backends: [\"[::ffff:10.0.0.1]:1\"]"}, func(s *lb.Service) any { return s.Backends[0].Address }, netip.MustParseAddrPort("10.0.0.1:1")},
	} {
		s := parsed(t, one(c.keys...))
		if got := c.got(&s); got != c.want {
			t.Errorf("%s: got %v, want %v", c.keys, got, c.want)
		}
	}
}

func TestAliases(t *testing.T) {
	file := lines("services:",
		"  - name: a", "    frontends: [\"tcp://10.0.0.1:80\"]", "    backends: &pool [\"10.0.1.1:80\", &b {address: \"10.0.1.2:80\", weight: 2}]",
		"  - name: b", "    frontends: [\"tcp://10.0.0.2:80\"]", "    backends: *pool",
		"  - name: c", "    frontends: [\"tcp://10.0.0.3:80\"]", "    backends: [*b]")
	cfg, err := Parse("f", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	if b := cfg.Services[1].Backends; len(b) != 2 || b[1].Weight != 2 {
		t.Errorf("b: %+v", b)
	}
	if b := cfg.Services[2].Backends; len(b) != 1 || b[0].Weight != 2 {
		t.Errorf("c: %+v", b)
	}
}

// Aliases cannot make a small file large, nor lead in circles.
func TestAliasBounds(t *testing.T) {
	var b strings.Builder
	b.WriteString("defaults:\n  allow: &l [" + strings.Repeat("10.0.0.0/8,", 20_000) + "]\nservices:\n")
	for i := range 200 {
		fmt.Fprintf(&b, "  - {name: s%d, frontends: [\"tcp://10.0.0.%d:80\"], allow: *l}\n", i, i)
	}
	_, err := Parse("f", []byte(b.String()))
	if err == nil || !strings.Contains(err.Error(), "aliases make the file too large") {
		t.Errorf("got %.200v", err)
	}
	for _, file := range []string{"services: &a [*a]\n", "defaults: &a {health: *a, allow: *a}\n", "&a admin: *a\n", "&a {*a : *a}\n"} {
		if _, err := Parse("f", []byte(file)); err == nil {
			t.Errorf("%q is accepted", file)
		}
	}
}
