package offload_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/handoff"
	"github.com/baton-lb/baton/offload"
	"github.com/baton-lb/baton/offload/bpf"
	"github.com/baton-lb/baton/offload/offloadtest"
)

// asked is a kernel that says when a flow's state is asked for: with each gate for the
// first time, the second, and so on.
type asked struct {
	*offloadtest.Kernel
	when func(f *offloadtest.Flow, g bpf.Gate, time int)
}

type askedFlow struct {
	*offloadtest.Flow
	k     *asked
	times map[bpf.Gate]int // the thread's, and later the path's, under its lock
}

func (k *asked) Add(s bpf.FlowSpec, g bpf.Gate) (offload.Flow, error) {
	f, err := k.Kernel.Add(s, g)
	if err != nil {
		return nil, err
	}
	return &askedFlow{Flow: f.(*offloadtest.Flow), k: k, times: make(map[bpf.Gate]int)}, nil
}

func (f *askedFlow) State() bpf.FlowState {
	g := f.Gate()
	f.times[g]++
	f.k.when(f.Flow, g, f.times[g])
	return f.Flow.State()
}

// askedWorld is a world of one connection, and what its backend has felt.
func askedWorld(t *testing.T, when func(w *world, f *offloadtest.Flow, g bpf.Gate, time int)) (w *world, c *net.TCPConn, felt chan error) {
	t.Helper()
	ready := make(chan struct{})
	k := &asked{Kernel: offloadtest.New(10)}
	k.when = func(f *offloadtest.Flow, g bpf.Gate, time int) {
		<-ready
		when(w, f, g, time)
	}
	w = newWorld(t, func(*testnet.Star) offload.Kernel { return k })
	felt = make(chan error, 1)
	w.star.Backends[0].Serve(backendPort, func(c net.Conn) {
		_, err := c.Read(make([]byte, 1))
		felt <- err
	})
	c = w.connect(vips[0])
	close(ready)
	return w, c, felt
}

func wantFelt(t *testing.T, felt chan error, want error) {
	t.Helper()
	select {
	case err := <-felt:
		if !errors.Is(err, want) {
			t.Errorf("the backend felt %v, want %v", err, want)
		}
	case <-time.After(patience):
		t.Errorf("the backend felt nothing, want %v", want)
	}
}

// A reset that met the shut gate is said to the other side, though the flow is forwarded
// by then: nobody repeats it.
func TestResetAtTheShutGate(t *testing.T) {
	w, c, felt := askedWorld(t, func(_ *world, f *offloadtest.Flow, g bpf.Gate, time int) {
		if g != bpf.GateForward || time != 1 {
			return
		}
		f.Update(func(s *bpf.FlowState) {
			for i := range s.Directions { // no packet since
				s.Directions[i] = bpf.DirectionState{Rewrite: s.Directions[i].Rewrite}
			}
			s.Directions[bpf.ToBackend].HeldReset = true
		})
	})
	id := w.record(c).ID()
	wantFelt(t, felt, unix.ECONNRESET)
	w.ended(id, flow.ByClient, flow.ReasonReset)
}

// One that met a gate which then opened to the sockets again has not come to one. It ends
// the flow as if it had.
func TestResetAtTheShutGateOfAFlowThatStays(t *testing.T) {
	w, c, felt := askedWorld(t, func(_ *world, f *offloadtest.Flow, g bpf.Gate, time int) {
		if g != bpf.GateFreeze || time != 1 {
			return
		}
		f.Update(func(s *bpf.FlowState) {
			d := &s.Directions[bpf.ToBackend]
			d.HeldReset, d.HasEnd = true, true // and a byte that is in no socket
		})
	})
	id := w.record(c).ID()
	wantFelt(t, felt, unix.ECONNRESET)
	w.ended(id, flow.ByClient, flow.ReasonReset)
}

// A reset that came by while the flow was watched, and that no socket has believed, was
// made up.
func TestResetThatWasMadeUp(t *testing.T) {
	w, k := fakeWorld(t)
	w.star.Backends[0].Serve(backendPort, testnet.Hold)
	k.OnAdd(func(f *offloadtest.Flow) {
		f.Update(func(s *bpf.FlowState) {
			for d := range s.Directions {
				s.Directions[d].HasAck, s.Directions[d].HasTSval, s.Directions[d].Reset = true, true, true
			}
		})
	})
	w.onPath(w.connect(vips[0]), flow.PathBPF)
}

// One that comes by in each attempt may be the peer's each time.
func TestResetsThatComeBy(t *testing.T) {
	w, c, _ := askedWorld(t, func(_ *world, f *offloadtest.Flow, g bpf.Gate, _ int) {
		if g == bpf.GateWatch {
			f.Update(func(s *bpf.FlowState) { s.Directions[bpf.ToClient].Reset = true })
		}
	})
	w.stays(c, flow.NotOffloadedBusy)
	if got := w.resultsSoFar(); got[flow.HandoffBusy] == 0 || got[flow.HandoffDone]+got[flow.HandoffEnded] > 0 {
		t.Errorf("%v", got)
	}
}

// pairOf is a connection in userspace.
func (w *world) pairOf(c *net.TCPConn) *pair {
	rec := w.record(c)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pairs {
		if p.rec == rec {
			return p
		}
	}
	return nil
}

// slow is a kernel whose grace periods take until somebody says so.
type slow struct {
	*offloadtest.Kernel
	over chan struct{}
}

func (k slow) Grace() error {
	<-k.over
	return k.Kernel.Grace()
}

// Who ends a flow in the last steps of its handoff is obeyed also when the Offloader is
// being closed: else it would live on in the kernel, and all others are gone.
func TestEndInTheLastHandoff(t *testing.T) {
	k := slow{offloadtest.New(10), make(chan struct{})}
	w := newWorld(t, func(*testnet.Star) offload.Kernel { return k })
	w.star.Backends[0].Serve(backendPort, testnet.Hold)
	c := w.connect(vips[0])
	p, rec := w.pairOf(c), w.record(c)
	testnet.Eventually(t, patience, "the gate is open to the other side", func() error {
		if all := k.Flows(); len(all) != 1 || all[0].Gate() != bpf.GateForward {
			return errors.New("it is not")
		}
		return nil
	})
	p.do(func() { p.end(flow.ByBaton, flow.ReasonShutdown, true) })
	closed := make(chan struct{})
	go func() { defer close(closed); w.stop() }()
	testnet.Eventually(t, patience, "the offloader is being closed", func() error {
		if _, why := w.o.Carry(handoff.Session{Policy: lb.Offload{Mode: lb.OffloadAlways}}); why != flow.NotOffloadedUnavailable {
			return errors.New(string(why))
		}
		return nil
	})
	close(k.over)
	<-closed
	w.ended(rec.ID(), flow.ByBaton, flow.ReasonShutdown)
	if g := k.Flows()[0].Gate(); g != bpf.GateReset {
		t.Errorf("the gate is %v", g)
	}
}
