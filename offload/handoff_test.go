package offload_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/offload"
	"github.com/baton-lb/baton/offload/bpf"
	"github.com/baton-lb/baton/offload/offloadtest"
)

// fakeWorld is a world whose kernel takes everything and carries nothing.
func fakeWorld(t testing.TB, change ...func(*offload.Options)) (*world, *offloadtest.Kernel) {
	t.Helper()
	k := offloadtest.New(1000)
	w := newWorld(t, func(*testnet.Star) offload.Kernel { return k }, change...)
	return w, k
}

// A flow that is handed off before its first byte leaves no trace: neither peer hears
// anything of it.
func TestHandoffIsSilent(t *testing.T) {
	w, k := fakeWorld(t)
	w.star.Backends[0].Serve(backendPort, testnet.Hold)
	for _, vip := range vips {
		c := w.connect(vip)
		rec := w.onPath(c, flow.PathBPF)
		if v := rec.View(); v.State != flow.Offloaded || v.NotOffloaded != "" || v.HandedOffAt.IsZero() {
			t.Errorf("%+v", v)
		}
		wantSilence(t, c)
	}
	for _, f := range k.Flows() {
		want := []bpf.Gate{bpf.GateWatch, bpf.GateFreeze, bpf.GateForward}
		if got := f.Gates(); !slices.Equal(got, want) {
			t.Errorf("gates %v, want %v", got, want)
		}
		s := f.State()
		there, back := s.Directions[bpf.ToBackend].Rewrite, s.Directions[bpf.ToClient].Rewrite
		if there.Seq+back.Ack != 0 || there.Ack+back.Seq != 0 || there.TSval+back.TSecr != 0 || there.TSecr+back.TSval != 0 {
			t.Errorf("what one direction adds the other does not take: %+v, %+v", there, back)
		}
		if there.Seq == 0 || there.TSval == 0 || there.Scale == 0 {
			t.Errorf("%+v", there)
		}
	}
	if n := len(k.Flows()); n != len(vips) || w.o.Flows() != n {
		t.Errorf("%d flows, and %d, want %d", n, w.o.Flows(), len(vips))
	}
	if got := w.resultsSoFar(); len(got) != 1 || got[flow.HandoffDone] != len(vips) || len(w.stood) != len(vips) {
		t.Errorf("%v; stood still %v", got, w.stood)
	}
}

// wantSilence checks that a peer has not been told anything.
func wantSilence(t testing.TB, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v; want silence", n, err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
}

// A flow that waits is handed off when it is old and big enough, with everything that
// it has carried.
func TestHandoffWaits(t *testing.T) {
	w, k := fakeWorld(t)
	w.offload(lb.Offload{Mode: lb.OffloadAuto, Path: lb.OffloadPathAuto, AfterBytes: 1000, AfterAge: 10 * time.Millisecond})
	w.star.Backends[0].Serve(backendPort, testnet.Echo)
	c := w.connect(vips[0])
	if err := testnet.Ask(c, "small"); err != nil {
		t.Fatal(err)
	}
	w.stays(c, flow.NotOffloadedWaiting)
	if n := len(k.Flows()); n != 0 {
		t.Errorf("%d flows are watched", n)
	}
	big := make([]byte, 600)
	for i := range big {
		big[i] = 'x'
	}
	if err := testnet.Ask(c, string(big)); err != nil {
		t.Fatal(err)
	}
	rec := w.onPath(c, flow.PathBPF)
	if v := rec.View(); v.BytesToBackend != 607 || v.BytesToClient != 607 {
		t.Errorf("%+v", v)
	}
	if k.Graces() < 2 {
		t.Errorf("%d grace periods, want one before it stands still and one after", k.Graces())
	}
}

// What says no before the backend is dialled.
func TestPrepareRefuses(t *testing.T) {
	w, _ := fakeWorld(t)
	w.star.Backends[0].Serve(backendPort, testnet.Echo)
	for _, tt := range []struct {
		policy lb.Offload
		want   flow.NotOffloaded
	}{
		{lb.Offload{Mode: lb.OffloadNever}, flow.NotOffloadedNever},
		{lb.Offload{Mode: lb.OffloadAlways, Path: lb.OffloadPathFlowtable}, flow.NotOffloadedTerminated},
	} {
		w.offload(tt.policy)
		c := w.connect(vips[0])
		if err := testnet.Ask(c, "hello"); err != nil {
			t.Error(err)
		}
		w.stays(c, tt.want)
	}
}

// A peer that ends its connection ends the record, and the flow is forgotten.
func TestEndsOfOffloadedFlows(t *testing.T) {
	w, k := fakeWorld(t)
	w.star.Backends[0].Serve(backendPort, testnet.Hold)
	closed := func(first bpf.Direction) func(*offloadtest.Flow) {
		return func(f *offloadtest.Flow) {
			for _, d := range []bpf.Direction{first, first.Other()} {
				f.Update(func(s *bpf.FlowState) {
					s.Directions[d].FIN, s.Directions[d].FINAcked = true, true
				})
				k.Tell(offload.Event{Flow: f, What: bpf.EventFIN, Direction: d})
			}
			k.Tell(offload.Event{Flow: f, What: bpf.EventOver, Direction: first.Other()})
		}
	}
	// Everything has happened before the first of its events is read.
	readLate := func(first bpf.Direction) func(*offloadtest.Flow) {
		return func(f *offloadtest.Flow) {
			f.Update(func(s *bpf.FlowState) {
				for d := range s.Directions {
					s.Directions[d].FIN, s.Directions[d].FINAcked = true, true
				}
			})
			k.Tell(offload.Event{Flow: f, What: bpf.EventFirst, Direction: bpf.ToBackend})
			k.Tell(offload.Event{Flow: f, What: bpf.EventFirst, Direction: bpf.ToClient})
			k.Tell(offload.Event{Flow: f, What: bpf.EventFIN, Direction: first})
			k.Tell(offload.Event{Flow: f, What: bpf.EventOver, Direction: first.Other()})
		}
	}
	reset := func(d bpf.Direction) func(*offloadtest.Flow) {
		return func(f *offloadtest.Flow) {
			f.Update(func(s *bpf.FlowState) { s.Directions[d].Reset = true })
			k.Tell(offload.Event{Flow: f, What: bpf.EventReset, Direction: d})
		}
	}
	stale := func(f *offloadtest.Flow) {
		f.SetGate(bpf.GateStale)
		k.Tell(offload.Event{Flow: f, What: bpf.EventStale})
	}
	for _, tt := range []struct {
		name string
		do   func(*offloadtest.Flow)
		by   flow.By
		why  flow.Reason
	}{
		{"client closes first", closed(bpf.ToBackend), flow.ByClient, flow.ReasonClosed},
		{"backend closes first", closed(bpf.ToClient), flow.ByBackend, flow.ReasonClosed},
		{"client closes first, read late", readLate(bpf.ToBackend), flow.ByClient, flow.ReasonClosed},
		{"backend closes first, read late", readLate(bpf.ToClient), flow.ByBackend, flow.ReasonClosed},
		{"client resets", reset(bpf.ToBackend), flow.ByClient, flow.ReasonReset},
		{"backend resets", reset(bpf.ToClient), flow.ByBackend, flow.ReasonReset},
		{"another flow has begun", stale, flow.ByClient, flow.ReasonClosed},
	} {
		c := w.connect(vips[0])
		rec := w.onPath(c, flow.PathBPF)
		f := flowOf(t, k, c)
		f.Update(func(s *bpf.FlowState) { s.Directions[bpf.ToBackend].Bytes = 5 })
		tt.do(f)
		v := w.ended(rec.ID(), tt.by, tt.why)
		if v.BytesToBackend != 5 || v.Path != flow.PathBPF {
			t.Errorf("%s: %+v", tt.name, v)
		}
		c.Close()
	}
	testnet.Eventually(t, patience, "the kernel forgets them", func() error {
		if n := len(k.Flows()); n != 0 {
			return fmt.Errorf("it has %d", n)
		}
		return nil
	})
	if w.o.Flows() != 0 {
		t.Errorf("%d flows are left", w.o.Flows())
	}
}

// flowOf finds a client's connection in the kernel.
func flowOf(t testing.TB, k *offloadtest.Kernel, c net.Conn) *offloadtest.Flow {
	t.Helper()
	for _, f := range k.Flows() {
		if f.Spec().Client == c.LocalAddr().(*net.TCPAddr).AddrPort() {
			return f
		}
	}
	t.Fatal("the kernel does not have the flow")
	return nil
}

// Whoever ends an offloaded flow is obeyed with a reset that both peers believe.
func TestEndResetsBothSides(t *testing.T) {
	w, k := fakeWorld(t)
	felt := make(chan error, 10)
	w.star.Backends[0].Serve(backendPort, func(c net.Conn) {
		_, err := c.Read(make([]byte, 1))
		felt <- err
	})
	for _, vip := range vips {
		c := w.connect(vip)
		rec := w.onPath(c, flow.PathBPF)
		for _, f := range k.Flows() {
			f.Update(func(s *bpf.FlowState) { s.Directions = [2]bpf.DirectionState{} }) // no packet since
		}
		if !rec.End(flow.ByBaton, flow.ReasonAdminReset) {
			t.Error("nobody to ask")
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s: the client felt %v", vip, err)
		}
		select {
		case err := <-felt:
			if !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("%s: the backend felt %v", vip, err)
			}
		case <-time.After(patience):
			t.Errorf("%s: the backend felt nothing", vip)
		}
		w.ended(rec.ID(), flow.ByBaton, flow.ReasonAdminReset)
	}
	for _, f := range k.Flows() {
		if f.Gate() != bpf.GateReset {
			t.Errorf("the gate is %v", f.Gate())
		}
	}
}
