package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/offload/bpf"
)

// handoffTo is an admin.Handoffs of a test.
type handoffTo func(flow.ID) (flow.HandoffResult, flow.NotOffloaded, error)

func (h handoffTo) Handoff(id flow.ID) (flow.HandoffResult, flow.NotOffloaded, error) { return h(id) }

func TestHandoffCommand(t *testing.T) {
	var next handoffTo // what the next flow meets
	s := serve(t, func(o *admin.Options) {
		o.Handoffs = handoffTo(func(id flow.ID) (flow.HandoffResult, flow.NotOffloaded, error) { return next(id) })
	})
	done := s.open("10.201.1.2:40000")
	next = func(flow.ID) (flow.HandoffResult, flow.NotOffloaded, error) {
		done.Attach(flow.PathBPF, &path{end: done.Finish})
		return flow.HandoffDone, "", nil
	}
	want := fmt.Sprintf("%s: handed off to bpf (web, 10.201.1.2:40000 to 10.202.1.2:8080)\n", done.ID())
	if got := s.fine("handoff", done.ID().String()[:8]); got != want {
		t.Errorf("got %q", got)
	}
	if got := s.fine("handoff", done.ID().String()); !strings.Contains(got, ": was handed off before, to bpf (") {
		t.Errorf("again: %q", got)
	}
	if got := s.fine("handoff", done.ID().String(), "-o", "json"); !strings.Contains(got, `"result":"done"`) || !strings.Contains(got, `"handedOffAt":`) {
		t.Errorf("as JSON: %q", got)
	}
	for _, tc := range []struct {
		result flow.HandoffResult
		why    flow.NotOffloaded
		err    error
		want   string
	}{
		{flow.HandoffRefused, flow.NotOffloadedSACK, nil, "stays in userspace: refused: sack"},
		{flow.HandoffBusy, flow.NotOffloadedBusy, nil, "stays in userspace: busy"},
		{flow.HandoffFailed, flow.NotOffloadedFailed, errors.New("freeze: no such device"), "stays in userspace: failed: freeze: no such device"},
	} {
		rec := s.open("10.201.1.3:40000")
		next = func(flow.ID) (flow.HandoffResult, flow.NotOffloaded, error) { return tc.result, tc.why, tc.err }
		code, out, errs := s.run("handoff", rec.ID().String())
		if code != exitNotFine || out != "" || errs != fmt.Sprintf("baton: flow %s %s\n", rec.ID(), tc.want) {
			t.Errorf("%s: %d %q %q", tc.result, code, out, errs)
		}
		code, out, errs = s.run("handoff", rec.ID().String(), "-o", "json")
		if code != exitNotFine || !strings.Contains(out, `"result":"`+string(tc.result)+`"`) || errs != "" {
			t.Errorf("%s as JSON: %d %q %q", tc.result, code, out, errs)
		}
	}
	gone := s.open("10.201.1.4:40000")
	next = func(flow.ID) (flow.HandoffResult, flow.NotOffloaded, error) {
		gone.Finish(flow.ByClient, flow.ReasonClosed)
		return flow.HandoffEnded, "", nil
	}
	if code, _, errs := s.run("handoff", gone.ID().String()); code != exitNotFine || !strings.Contains(errs, "has just ended: by client, closed") {
		t.Errorf("ended: %d %q", code, errs)
	}
}

// Without an offloader the command says that there is none.
func TestHandoffCommandUnavailable(t *testing.T) {
	s := serve(t)
	rec := s.open("10.201.1.2:40000")
	code, _, errs := s.run("handoff", rec.ID().String())
	if code != exitNotFine || !strings.HasSuffix(errs, "stays in userspace: refused: unavailable\n") {
		t.Errorf("%d %q", code, errs)
	}
	if out := s.fine("flows", "-o", "wide"); !strings.Contains(out, "NOT-OFFLOADED") {
		t.Errorf("no reasons in\n%s", out)
	}
}

// What the kernel drops of the flows that it carries is told with what the guard
// does.
func TestDropsBeside(t *testing.T) {
	var k kernelPath
	others := func() map[flow.Drop]uint64 { return map[flow.Drop]uint64{flow.DropClosedPort: 3} }
	if got := k.dropsBeside(others)(); len(got) != 1 || got[flow.DropClosedPort] != 3 {
		t.Errorf("without a kernel path: %v", got)
	}
	if got := k.dropsBeside(nil)(); len(got) != 0 {
		t.Errorf("without anything: %v", got)
	}
	got := droppedIn(map[bpf.FlowCount]uint64{bpf.FlowsTooBig: 1, bpf.FlowsNoWay: 2, bpf.FlowsForwarded: 1000, bpf.FlowsParked: 1000})
	if sum := got[flow.DropTooBig] + got[flow.DropUnreachable]; sum != 3 || got[flow.DropTooBig] != 1 {
		t.Errorf("%v", got)
	}
	for why, n := range got {
		if !slices.Contains(flow.Drops, why) || n > 2 {
			t.Errorf("%s: %d", why, n)
		}
	}
}

// Each flow is handed off by whoever has it.
func TestHandoffsByProtocol(t *testing.T) {
	r := flow.NewRegistry(flow.Options{})
	by := func(word flow.NotOffloaded) handoffTo {
		return func(flow.ID) (flow.HandoffResult, flow.NotOffloaded, error) { return flow.HandoffRefused, word, nil }
	}
	h := &handoffs{registry: r, tcp: by("tcp"), udp: by("udp")}
	client := netip.MustParseAddrPort("10.201.1.2:40000")
	for proto, want := range map[flow.Proto]flow.NotOffloaded{flow.TCP: "tcp", flow.UDP: "udp"} {
		rec := r.Open(flow.Spec{Proto: proto, Service: "web", Client: client})
		if _, why, _ := h.Handoff(rec.ID()); why != want {
			t.Errorf("%s was handed off by %s", proto, why)
		}
	}
	if result, _, _ := h.Handoff(77); result != flow.HandoffEnded {
		t.Errorf("no flow: %s", result)
	}
}
