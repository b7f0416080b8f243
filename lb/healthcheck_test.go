package lb

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestParseStatusRanges(t *testing.T) {
	for _, c := range []struct {
		in        string
		good, bad []int
	}{
		{"200-399", []int{200, 204, 302, 399}, []int{100, 199, 400, 503}},
		{"200", []int{200}, []int{199, 201}},
		{"200,204,300-399", []int{200, 204, 300, 399}, []int{201, 203, 205, 299, 400}},
		{" 200 , 500-599", []int{200, 500, 599}, []int{204, 499}},
		{"100-599", []int{100, 599}, []int{99, 600, 0, -1}},
	} {
		r, err := ParseStatusRanges(c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		for _, code := range c.good {
			if !r.Has(code) {
				t.Errorf("%q has not %d", c.in, code)
			}
		}
		for _, code := range c.bad {
			if r.Has(code) {
				t.Errorf("%q has %d", c.in, code)
			}
		}
	}
	for _, in := range []string{"", "x", "200-", "-200", "200-300-400", "99", "600", "1000", "0200", "200,", "+20", "300-200"} {
		if r, err := ParseStatusRanges(in); err == nil {
			t.Errorf("%q: %v, want an error", in, r)
		}
	}
	if (StatusRanges)(nil).Has(200) {
		t.Error("no ranges have 200")
	}
}

func FuzzParseStatusRanges(f *testing.F) {
	for _, s := range []string{"200-399", "200,204", "", "100-599,1", "300-200"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseStatusRanges(s)
		if (err == nil) != (len(r) > 0) {
			t.Fatalf("%q: %v, %v", s, r, err)
		}
		for _, in := range r {
			if in[0] < 100 || in[0] > in[1] || in[1] > 599 || !r.Has(in[0]) || !r.Has(in[1]) {
				t.Fatalf("%q: %v", s, r)
			}
		}
	})
}

func TestValidateHealth(t *testing.T) {
	for _, c := range []struct {
		name   string
		probe  Probe
		change func(*HealthCheck)
		want   []string // "" = nothing about health
	}{
		{"tcp", ProbeTCP, func(*HealthCheck) {}, nil},
		{"http", ProbeHTTP, func(*HealthCheck) {}, nil},
		{"udp", ProbeUDP, func(h *HealthCheck) { h.Send, h.Expect = "ping", "pong" }, nil},
		{"what http asks does not matter to tcp", ProbeTCP, func(h *HealthCheck) { h.Path, h.Status = "", "" }, nil},
		{"numbers", ProbeTCP, func(h *HealthCheck) { h.Interval, h.Timeout, h.Rise, h.Fall = 0, -1, 0, -1 }, []string{
			"health.interval: 0s is not longer than 0", "health.timeout: -1ns is not longer than 0",
			"health.rise: 0 is less than 1", "health.fall: -1 is less than 1",
		}},
		{"a request that ends early", ProbeHTTP, func(h *HealthCheck) { h.Path, h.Host = "/ HTTP/1.1\r\n", "a\nb" }, []string{
			`health.path: "/ HTTP/1.1\r\n" has a space or a control character in it`,
			`health.host: "a\nb" has a space or a control character in it`,
		}},
		{"http", ProbeHTTP, func(h *HealthCheck) { h.Path, h.Status, h.Send = "", "2xx", "ping" }, []string{
			`health.path: "" does not begin with /`,
			`health.status: "2xx" is not a list of HTTP status codes: write 200-399 or 200,204`,
			"health.send: is for tcp and udp: an http probe sends its request",
		}},
		{"too big", ProbeUDP, func(h *HealthCheck) { h.Send = strings.Repeat("x", maxDatagram+1) }, []string{
			"health.send: 65508 bytes do not fit into a datagram",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Default("web")
			s.Health = DefaultHealth(c.probe)
			c.change(&s.Health)
			var f faults
			s.validateHealth(&f)
			var got []string
			for _, err := range f {
				got = append(got, err.Error())
			}
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestSlowStart(t *testing.T) {
	for _, c := range []struct {
		balance Algorithm
		said    time.Duration
		want    time.Duration
	}{
		{RoundRobin, 0, 0}, {SourceHash, 0, 0}, {Maglev, 0, 0},
		{LeastConnections, 0, DefaultSlowStart}, {Random, 0, DefaultSlowStart},
		{RoundRobin, time.Minute, time.Minute}, {LeastConnections, time.Second, time.Second},
		{LeastConnections, -1, 0}, {RoundRobin, -1, 0},
	} {
		s := Default("web")
		s.Balance, s.Health.SlowStart = c.balance, c.said
		if got := s.SlowStart(); got != c.want {
			t.Errorf("%s, %s said: %s, want %s", c.balance, c.said, got, c.want)
		}
	}
}
