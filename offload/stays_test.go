package offload_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
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

// A flow that the kernel will not have stays in userspace with the reason, works there
// as before, and leaves nothing in the kernel.
func TestFlowsThatStay(t *testing.T) {
	seen := func(change func(*bpf.FlowState)) func(*offloadtest.Flow) {
		return func(f *offloadtest.Flow) {
			f.Update(func(s *bpf.FlowState) {
				for i := range s.Directions {
					s.Directions[i].HasAck, s.Directions[i].HasTSval = true, true
				}
				change(s)
			})
		}
	}
	for _, tt := range []struct {
		name    string
		added   func(*offloadtest.Flow)
		want    flow.NotOffloaded
		result  flow.HandoffResult
		freezes bool
	}{
		{
			name: "nothing is seen", added: func(*offloadtest.Flow) {},
			want: flow.NotOffloadedUnseen, result: flow.HandoffBusy,
		},
		{
			name:  "no timestamp of the backend is seen",
			added: seen(func(s *bpf.FlowState) { s.Directions[bpf.ToClient].HasTSval = false }),
			want:  flow.NotOffloadedUnseen, result: flow.HandoffBusy,
		},
		{
			name:  "a packet is half way through",
			added: seen(func(s *bpf.FlowState) { s.Directions[bpf.ToClient].Enter++ }),
			want:  flow.NotOffloadedBusy, result: flow.HandoffBusy, freezes: true,
		},
		{
			name:  "a byte that passed is not in the socket",
			added: seen(func(s *bpf.FlowState) { s.Directions[bpf.ToBackend].HasEnd = true }),
			want:  flow.NotOffloadedBusy, result: flow.HandoffBusy, freezes: true,
		},
		{
			name:  "something went unaccounted for",
			added: seen(func(s *bpf.FlowState) { s.Directions[bpf.ToBackend].Dirty = true }),
			want:  flow.NotOffloadedBusy, result: flow.HandoffBusy, freezes: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, k := fakeWorld(t)
			flows := make(chan *offloadtest.Flow, 10)
			k.OnAdd(func(f *offloadtest.Flow) {
				tt.added(f)
				flows <- f
			})
			w.star.Backends[0].Serve(backendPort, testnet.Echo)
			c := w.connect(vips[0])
			w.stays(c, tt.want)
			if got := w.resultsSoFar(); got[tt.result] == 0 || got[flow.HandoffDone] > 0 {
				t.Errorf("%v, want %s", got, tt.result)
			}
			talk(t, c, "still here")
			p := w.pair(c)
			w.wantLive(p)
			p.do(func() {
				if slices.Max(p.resumed) != 0 {
					t.Errorf("resumed with timeouts %v: a peer that pauses would not live through them", p.resumed)
				}
			})
			froze := false
			gates := (<-flows).Gates()
			for _, g := range gates {
				froze = froze || g == bpf.GateFreeze
			}
			if froze != tt.freezes {
				t.Errorf("gates %v", gates)
			}
			c.Close()
			testnet.Eventually(t, patience, "nothing is left in the kernel", func() error {
				if n := len(k.Flows()); n > 0 {
					return fmt.Errorf("%d flows", n)
				}
				return nil
			})
		})
	}
}

// pair finds the flow of a client's connection.
func (w *world) pair(c net.Conn) *pair {
	id := w.record(c).ID()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pairs {
		if p.rec.ID() == id {
			return p
		}
	}
	return nil
}

// wantLive checks that attempts have left both sockets as they were, between two of
// them.
func (w *world) wantLive(p *pair) {
	w.t.Helper()
	testnet.Eventually(w.t, patience, "the sockets are as they were", func() (err error) {
		p.do(func() { err = errors.Join(live(p.fds[0]), live(p.fds[1])) })
		return err
	})
}

func live(fd int) error {
	for _, o := range []struct {
		name         string
		level, value int
		want         int
	}{
		{"TCP_REPAIR", unix.IPPROTO_TCP, unix.TCP_REPAIR, 0},
		{"SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR, 1},
		{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, userTimeout},
	} {
		if v, err := unix.GetsockoptInt(fd, o.level, o.value); v != o.want || err != nil {
			return fmt.Errorf("%s is %d, %v", o.name, v, err)
		}
	}
	return nil
}

// What stands in the way before the flow stands still.
func TestKernelRefuses(t *testing.T) {
	w := newWorld(t, func(*testnet.Star) offload.Kernel { return offloadtest.New(1) })
	w.star.Backends[0].Serve(backendPort, testnet.Echo)
	w.onPath(w.connect(vips[0]), flow.PathBPF)
	c := w.connect(vips[0])
	w.stays(c, flow.NotOffloadedTableFull)
	talk(t, c, "hello")
	w.offload(lb.Offload{Mode: lb.OffloadAuto, AfterAge: 0, AfterBytes: 0})
	c = w.connect(vips[0])
	w.stays(c, flow.NotOffloadedTableFull)
	talk(t, c, "hello")
}

// A client that uses its port again meets what the kernel keeps of the flow before, and
// leaves userspace when that is gone.
func TestClientPortUsedAgain(t *testing.T) {
	for _, mode := range []lb.OffloadMode{lb.OffloadAuto, lb.OffloadAlways} {
		t.Run(string(mode), func(t *testing.T) {
			w, k := fakeWorld(t)
			w.offload(lb.Offload{Mode: mode})
			w.star.Backends[0].Serve(backendPort, testnet.Echo)
			client := addrPort(w.star.Client.IP4, 40_000)
			before, err := k.Add(bpf.FlowSpec{
				Proto: flow.TCP, Client: client, Frontend: addrPort(vips[0], vipPort),
				Local: addrPort(w.star.Balancer.IP4, 1), Backend: w.backend(vips[0]),
			}, bpf.GateStale)
			if err != nil {
				t.Fatal(err)
			}
			c, err := w.star.Client.DialContext(t.Context(), "tcp", client, addrPort(vips[0], vipPort))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			w.stays(c, flow.NotOffloadedTaken)
			talk(t, c, "hello")
			if err := before.Delete(); err != nil {
				t.Fatal(err)
			}
			w.onPath(c, flow.PathBPF)
		})
	}
}

// A client or a backend that is a process of the balancer stays in userspace.
func TestHostLocalStays(t *testing.T) {
	w, _ := fakeWorld(t)
	w.offload(lb.Offload{Mode: lb.OffloadAuto})
	w.star.Backends[0].Serve(backendPort, testnet.Echo)
	c, err := w.star.Balancer.DialContext(t.Context(), "tcp", addrPort(w.star.Balancer.IP4, 0), addrPort(vips[0], vipPort))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	talk(t, c, "hello")
	w.stays(c, flow.NotOffloadedHostLocal)
}

// A flow can be handed off on request, and the answer says what came of it.
func TestHandoffOnRequest(t *testing.T) {
	w, k := fakeWorld(t)
	w.offload(lb.Offload{Mode: lb.OffloadAuto, AfterBytes: 1 << 40, AfterAge: time.Hour})
	w.star.Backends[0].Serve(backendPort, testnet.Echo)
	c := w.connect(vips[0])
	id := w.record(c).ID()
	w.stays(c, flow.NotOffloadedWaiting)
	if r, why, err := w.o.Handoff(id); r != flow.HandoffDone || why != "" || err != nil {
		t.Errorf("%s, %q, %v", r, why, err)
	}
	w.onPath(c, flow.PathBPF)
	if r, why, err := w.o.Handoff(id); r != flow.HandoffDone || why != "" || err != nil {
		t.Errorf("again: %s, %q, %v", r, why, err)
	}
	if r, _, err := w.o.Handoff(12345); r != flow.HandoffEnded || err == nil {
		t.Errorf("of nothing: %s, %v", r, err)
	}
	k.OnAdd(nil) // nothing is seen any more
	c = w.connect(vips[0])
	w.stays(c, flow.NotOffloadedWaiting)
	for _, want := range []flow.HandoffResult{flow.HandoffBusy, flow.HandoffRefused} {
		r, why, err := w.o.Handoff(w.record(c).ID())
		if r != want || why != flow.NotOffloadedUnseen || err != nil {
			t.Errorf("unseen: %s, %q, %v; want %s", r, why, err, want)
		}
	}
	w.offload(lb.Offload{Mode: lb.OffloadNever})
	c = w.connect(vips[0])
	w.stays(c, flow.NotOffloadedNever)
	if r, why, err := w.o.Handoff(w.record(c).ID()); r != flow.HandoffRefused || why != flow.NotOffloadedNever || err != nil {
		t.Errorf("never: %s, %q, %v", r, why, err)
	}
}

// A kernel that refuses now and then costs handoffs, never a flow.
func TestFaultyKernel(t *testing.T) {
	k := offloadtest.New(1000)
	faulty := offloadtest.NewFaulty(k, 3)
	w := newWorld(t, func(*testnet.Star) offload.Kernel { return faulty })
	w.offload(lb.Offload{Mode: lb.OffloadAuto})
	w.star.Backends[0].Serve(backendPort, testnet.Echo)
	var all sync.WaitGroup
	for i := range 30 {
		c := w.connect(vips[i%2])
		all.Go(func() {
			rec := w.record(c)
			testnet.Eventually(t, patience, "an attempt is over", func() error {
				if v := rec.View(); v.Path == flow.PathUserspace && (v.NotOffloaded == "" || v.NotOffloaded == flow.NotOffloadedWaiting) {
					return fmt.Errorf("%+v", v)
				}
				return nil
			})
		})
	}
	all.Wait()
	if faulty.Faults() == 0 || w.resultsSoFar()[flow.HandoffDone] == 0 {
		t.Errorf("%d faults, %v", faulty.Faults(), w.resultsSoFar())
	}
}

// Nothing moves for the time that the service allows: the flow is reset.
func TestIdleFlowsAreReset(t *testing.T) {
	w, k := fakeWorld(t)
	w.change(func(s *lb.Service) {
		s.Timeouts.Idle, s.Timeouts.HalfClosed = 300*time.Millisecond, 200*time.Millisecond
	})
	w.star.Backends[0].Serve(backendPort, testnet.Hold)
	id := w.onPath(w.connect(vips[0]), flow.PathBPF).ID()
	v := w.ended(id, flow.ByBaton, flow.ReasonIdle)
	if d := v.EndedAt.Sub(v.HandedOffAt); d < 300*time.Millisecond {
		t.Errorf("after %v", d)
	}
	w.change(idleAfter(time.Hour))
	id = w.onPath(w.connect(vips[0]), flow.PathBPF).ID()
	for _, f := range k.Flows() {
		f.Update(func(s *bpf.FlowState) {
			s.Directions[bpf.ToClient].FIN, s.Directions[bpf.ToClient].FINAcked = true, true
		})
		k.Tell(offload.Event{Flow: f, What: bpf.EventFIN, Direction: bpf.ToClient})
	}
	w.ended(id, flow.ByBaton, flow.ReasonHalfClosedIdle)
}

// A side that has been sent something, and has said nothing of it for that time, was not
// idle: it is lost.
func TestPeerThatAcknowledgesNothingIsLost(t *testing.T) {
	w, k := fakeWorld(t)
	w.change(idleAfter(idleEnough))
	w.star.Backends[0].Serve(backendPort, testnet.Hold)
	for i, peer := range []flow.By{flow.ByBackend, flow.ByClient} {
		id := w.onPath(w.connect(vips[0]), flow.PathBPF).ID()
		for _, f := range k.Flows() {
			f.Update(func(s *bpf.FlowState) {
				sent, said := &s.Directions[i], &s.Directions[1-i]
				sent.HasEnd, sent.Forwarded, sent.End = true, true, said.Ack-sent.Rewrite.Seq+10
			})
		}
		w.ended(id, peer, flow.ReasonPeerLost)
	}
}

// All flows that are wanted end at once.
func TestEndAll(t *testing.T) {
	w, _ := fakeWorld(t)
	w.star.Backends[0].Serve(backendPort, testnet.Hold)
	var ids []flow.ID
	for _, vip := range vips {
		ids = append(ids, w.onPath(w.connect(vip), flow.PathBPF).ID())
	}
	only := func(v flow.View) bool { return v.Frontend.Addr() == vips[0] }
	if n := w.o.EndAll(flow.ReasonShutdown, only); n != 1 {
		t.Errorf("%d ended", n)
	}
	w.ended(ids[0], flow.ByBaton, flow.ReasonShutdown)
	if n := w.o.EndAll(flow.ReasonShutdown, nil); n != 1 || w.o.EndAll(flow.ReasonShutdown, nil) != 0 {
		t.Errorf("%d ended", n)
	}
	w.ended(ids[1], flow.ByBaton, flow.ReasonShutdown)
}

// After Close nothing is touched any more, whoever asks.
func TestCallsAfterClose(t *testing.T) {
	w, k := fakeWorld(t)
	w.star.Backends[0].Serve(backendPort, testnet.Hold)
	rec := w.onPath(w.connect(vips[0]), flow.PathBPF)
	k.Flows()[0].Update(func(s *bpf.FlowState) { s.Directions[bpf.ToBackend].Bytes = 7 })
	if v := rec.View(); v.BytesToBackend != 7 {
		t.Errorf("%+v", v)
	}
	w.stop()
	k.Flows()[0].Update(func(s *bpf.FlowState) { s.Directions[bpf.ToBackend].Bytes = 8 })
	rec.End(flow.ByBaton, flow.ReasonAdminReset)
	if v := rec.View(); v.BytesToBackend != 7 || v.EndedBy != "" {
		t.Errorf("%+v", v)
	}
	if gate := k.Flows()[0].Gate(); gate != bpf.GateForward {
		t.Errorf("the gate is at %s", gate)
	}
	c := w.connect(vips[0])
	w.stays(c, flow.NotOffloadedUnavailable)
}

// An Offloader that ends lets flows go that are held for it, and holds no other.
func TestHeldFlowsAreLetGo(t *testing.T) {
	w, k := fakeWorld(t)
	w.star.Backends[0].Serve(backendPort, testnet.Echo)
	k.OnAdd(nil) // attempts take their time
	var conns []net.Conn
	for range 40 {
		conns = append(conns, w.connect(vips[0]))
	}
	w.stop()
	for _, c := range append(conns, w.connect(vips[1])) {
		talk(t, c, "hello")
	}
}
