package offload_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/clock"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/offload"
	"github.com/baton-lb/baton/offload/bpf"
	"github.com/baton-lb/baton/offload/offloadtest"
)

// What the next process finds it carries on, ends, or takes away.
func TestAdopt(t *testing.T) {
	w, k := fakeWorld(t)
	w.star.Backends[0].Serve(backendPort, testnet.Hold)
	c := w.connect(vips[0])
	rec := w.onPath(c, flow.PathBPF)
	f := flowOf(t, k, c)
	f.Update(func(s *bpf.FlowState) {
		d := &s.Directions[bpf.ToBackend]
		d.Bytes, d.Packets, d.At = 100, 2, clock.Monotonic()
	})
	view := rec.View()
	w.stop()
	if live, ended := w.registry.Len(), len(w.registry.LastEnded()); live+ended > 0 {
		t.Errorf("%d records are live where nobody has the flow any more, %d ended", live, ended)
	}

	next := k.Reopen()
	good := next.Flows()[0].Spec()
	add := func(port uint16, gate bpf.Gate, note []byte) {
		s := good
		s.Client = addrPort(s.Client.Addr(), port)
		s.Local = addrPort(s.Local.Addr(), port)
		s.Note = note
		if _, err := next.Add(s, gate); err != nil {
			t.Fatal(err)
		}
	}
	add(1, bpf.GateWatch, good.Note)
	add(2, bpf.GateDrain, good.Note)
	add(3, bpf.GateFreeze, good.Note)
	add(4, bpf.GateStale, good.Note)
	add(5, bpf.GateReset, good.Note)
	add(6, bpf.GateForward, []byte("nobody's"))
	udp := good
	udp.Proto = flow.UDP
	if _, err := next.Add(udp, bpf.GateForward); err != nil {
		t.Fatal(err)
	}
	udp.Client, udp.Local = addrPort(udp.Client.Addr(), 9), addrPort(udp.Local.Addr(), 9)
	if _, err := next.Add(udp, bpf.GateWatch); err != nil {
		t.Fatal(err)
	}
	w.open(next)
	if got := w.registry.Len(); got != 1 {
		t.Errorf("%d records", got)
	}
	v := w.record(c).View()
	if v.ID != view.ID || v.State != flow.Offloaded || v.Path != flow.PathBPF || v.Backend != view.Backend || v.Picked != view.Picked ||
		v.Frontend != view.Frontend || v.BytesToBackend != 100 || v.PacketsToBackend != view.PacketsToBackend ||
		v.LastSeenAt.Sub(view.LastSeenAt).Abs() > time.Second || v.HandedOffAt.Sub(view.HandedOffAt).Abs() > time.Second {
		t.Errorf("%+v\nwas %+v", v, view)
	}
	load := w.registry.Acquire("web", view.Backend)
	if load.Flows() != 1 {
		t.Errorf("the backend has %d flows", load.Flows())
	}
	gates := make(map[uint16]bpf.Gate)
	for _, f := range next.Flows() {
		if f.Spec().Proto == flow.TCP {
			gates[f.Spec().Client.Port()] = f.Gate()
		}
	}
	if len(gates) != 3 || gates[5] != bpf.GateReset || gates[6] != bpf.GateReset || gates[good.Client.Port()] != bpf.GateForward {
		t.Errorf("%v", gates)
	}
	if kept := w.o.Kept(); len(kept) != 1 || kept[0].Client != good.Client || kept[0].Base.BytesToBackend != 0 ||
		kept[0].Picked != view.Picked || kept[0].HandedOffAt.Sub(view.HandedOffAt).Abs() > time.Second {
		t.Errorf("%+v", kept)
	}
	if n := w.o.Adopt(); n != 0 {
		t.Errorf("%d ended, and nobody was asked", n)
	}
	w.registry.Release(load)
	w.record(c).End(flow.ByBaton, flow.ReasonAdminReset)
	w.ended(view.ID, flow.ByBaton, flow.ReasonAdminReset)
}

// A flow that has been idle for too long already when it is found is reset, not given
// another hour.
func TestAdoptIdle(t *testing.T) {
	w, k := fakeWorld(t)
	w.star.Backends[0].Serve(backendPort, testnet.Hold)
	w.change(idleAfter(idleEnough))
	c := w.connect(vips[0])
	id := w.onPath(c, flow.PathBPF).ID()
	w.stop() // before anybody sees that it is idle
	flowOf(t, k, c).Update(func(s *bpf.FlowState) {
		s.Directions[bpf.ToBackend].Bytes, s.Directions[bpf.ToBackend].At = 1, 1 // since the host started
	})
	w.open(k.Reopen())
	w.ended(id, flow.ByBaton, flow.ReasonIdle)
}

// A process that dies when the gate is open, and before it has written down by how much
// numbers differ, leaves that where packets are rewritten.
func TestAdoptBeforeTheNoteIsWritten(t *testing.T) {
	w, k := fakeWorld(t)
	w.star.Backends[0].Serve(backendPort, testnet.Hold)
	w.change(idleAfter(idleEnough))
	var early []byte
	k.OnAdd(func(f *offloadtest.Flow) {
		early = f.Spec().Note
		f.Update(func(s *bpf.FlowState) {
			for i := range s.Directions {
				s.Directions[i].HasAck, s.Directions[i].HasTSval = true, true
			}
		})
	})
	c := w.connect(vips[0])
	id := w.onPath(c, flow.PathBPF).ID()
	w.stop()
	f := flowOf(t, k, c)
	if err := f.SetNote(early); err != nil {
		t.Fatal(err)
	}
	f.Update(func(s *bpf.FlowState) {
		sent := &s.Directions[bpf.ToBackend]
		sent.Rewrite.Seq = 1000
		sent.HasEnd, sent.Forwarded, sent.End = true, true, s.Directions[bpf.ToClient].Ack-1000+10
	})
	w.open(k.Reopen())
	w.ended(id, flow.ByBackend, flow.ReasonPeerLost)
}

// What an earlier process has seen the end of has not ended once more.
func TestAdoptEnded(t *testing.T) {
	w, k := fakeWorld(t)
	w.star.Backends[0].Serve(backendPort, testnet.Hold)
	c := w.connect(vips[0])
	id := w.onPath(c, flow.PathBPF).ID()
	f := flowOf(t, k, c)
	f.Update(func(s *bpf.FlowState) { s.Directions[bpf.ToBackend].Reset = true })
	k.Tell(offload.Event{Flow: f, What: bpf.EventReset})
	w.ended(id, flow.ByClient, flow.ReasonReset)
	w.stop()
	next := k.Reopen()
	w.open(next)
	if n := w.registry.Len(); n != 0 || len(next.Flows()) != 1 {
		t.Errorf("%d records of %d flows", n, len(next.Flows()))
	}
	testnet.Eventually(t, patience, "it is forgotten", func() error {
		if n := len(next.Flows()); n != 0 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	if ended := w.registry.LastEnded(); len(ended) != 0 {
		t.Errorf("%+v", ended)
	}
}
