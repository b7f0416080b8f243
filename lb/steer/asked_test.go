package steer

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/sched"
	"github.com/baton-lb/baton/lb/steer/program"
)

func byPacket(s *lb.Service) { s.Steer.Choose = lb.ChoosePacket }

// asking waits until somebody answers for first packets.
func (w *world) asking() {
	w.t.Helper()
	w.eventually("somebody answers", func() (err error) {
		w.kernel.see(func() {
			if w.kernel.asks == nil {
				err = errors.New("nobody")
			}
		})
		return err
	})
}

// A flow whose first packet comes here goes where it would in mode proxy, also by a choice that needs its client.
func TestAnswerIsTheSchedulers(t *testing.T) {
	for _, how := range []lb.Algorithm{lb.SourceHash, lb.Maglev} {
		w := newWorld(t, newKernel(t))
		w.apply(web(5, byPacket, func(s *lb.Service) { s.Balance = how }))
		w.asking()
		s, _ := w.store.Snapshot().Service("web")
		for i := range 40 {
			client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), uint16(1000+i))
			r, _ := w.kernel.begin(vip, client)
			got, _ := w.kernel.Lookup(r)
			want, err := s.FrontendSet[0].For(false).Pick(sched.Request{Client: client})
			if err != nil || got.Address != want.Address {
				t.Fatalf("%s: %s went to %s, want %v, %v", how, client, got.Address, want, err)
			}
		}
	}
}

// Flows that have not begun yet count for those that come after them, and not for ever; the answer to a packet that comes again is the same.
func TestAnswersCount(t *testing.T) {
	w := newQuietWorld(t, newKernel(t))
	w.apply(web(4, byPacket, func(s *lb.Service) { s.Balance = lb.LeastConnections }))
	pool := w.kernel.pool().ID
	ask := func(port uint16) program.BackendID {
		return w.steer.answer(program.Ask{Proto: flow.TCP, Client: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port), Frontend: vip.Address, Pool: pool})
	}
	got := make(map[program.BackendID]int)
	for port := range uint16(20) {
		first := ask(port + 1)
		if again := ask(port + 1); again != first {
			t.Fatalf("%d, and then %d", first, again)
		}
		got[first]++
	}
	for id, n := range got {
		if n != 5 {
			t.Errorf("backend %d got %d of 20", id, n)
		}
	}
	w.steer.expireAsked(time.Now().Add(openingTime * 2))
	if n := len(w.steer.asked.flows) + len(w.steer.asked.byClient); n != 0 {
		t.Errorf("%d are waited for", n)
	}
	for _, b := range w.steer.services["web"].now.backends {
		if n := b.Load.Planned(); n != 0 {
			t.Errorf("%s has %d flows that never were", b.Address, n)
		}
	}
	if id := w.steer.answer(program.Ask{Pool: 99}); id != program.NoAnswer {
		t.Errorf("a pool that is not there answers %d", id)
	}
}

// A client has as many connections at once as it may, whatever came first: the limit or they.
func TestPerClient(t *testing.T) {
	w := newWorld(t, newKernel(t))
	w.apply(web(2))
	from := func(a string, port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(a), port) }
	first, _ := w.kernel.begin(vip, from("192.0.2.1", 1))
	w.apply(web(2, func(s *lb.Service) { s.Limits.PerClient = 2 }))
	w.asking()
	try := func(client netip.AddrPort, want bool) program.Ref {
		t.Helper()
		r, answer := w.kernel.begin(vip, client)
		if got := r.Born != 0; got != want || answer != program.ByPacket && !got {
			t.Errorf("%s: began %v, want %v (answer %d)", client, got, want, answer)
		}
		return r
	}
	try(from("192.0.2.1", 2), true)
	try(from("192.0.2.1", 3), false)
	try(from("192.0.2.2", 3), true)
	w.kernel.end(first, flow.ByClient, false)
	w.eventually("it may have another", func() error {
		if r, _ := w.kernel.begin(vip, from("192.0.2.1", 4)); r.Born == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if n := w.registry.DropCounts()[flow.DropLimitClient]; n == 0 {
		t.Error("nothing is counted")
	}
	w.apply(web(0))
	for _, v := range w.steer.flows.all() {
		v.End(flow.ByBaton, flow.ReasonReset)
	}
	w.eventually("nobody is counted", func() error {
		if n := w.steer.flows.of(clientOf{w.steer.services["web"].id, netip.MustParseAddr("192.0.2.1")}); n != 0 {
			return fmt.Errorf("%d connections", n)
		}
		return nil
	})
}
