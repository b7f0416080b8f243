package e2e

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

const sticky = "affinity: {by: client-ip}"

// pin finds out where the client is kept, and checks that it is kept.
func (w world) pin(t *testing.T) (backend int) {
	t.Helper()
	first := w.who(t)
	for range 6 {
		if name := w.who(t); name != first {
			t.Fatalf("the client was at %s and came to %s", first, name)
		}
	}
	return w.number(t, first)
}

// comesBack has the client connect again and again until stop is called, which
// reports whether all went well.
func (w world) comesBack(t *testing.T) (stop func()) {
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
			}
			if _, err := w.Client.AskName(w.vip); err != nil {
				t.Errorf("connection %d of the client that keeps coming: %v", n, err)
				return
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// A1: the backend of a client turns unready while the client keeps coming: the
// next connection goes to a ready one, and no connection fails.
func TestAffinityUnready(t *testing.T) {
	everyPath(t, 3, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, sticky))
		for _, tc := range []struct {
			name       string
			take, back func(i int)
		}{
			{"drain in the file",
				func(i int) { b.reload(w.service(w.with(map[int]string{i: ", state: drain"}), sticky)) },
				func(int) { b.reload(w.service(w.with(nil), sticky)) }},
			{"down in the file",
				func(i int) { b.reload(w.service(w.with(map[int]string{i: ", state: down"}), sticky)) },
				func(int) { b.reload(w.service(w.with(nil), sticky)) }},
			{"gone from the file",
				func(i int) { b.reload(w.service(w.without(i), sticky)) },
				func(int) { b.reload(w.service(w.with(nil), sticky)) }},
			{"weight 0 in the file",
				func(i int) { b.reload(w.service(w.with(map[int]string{i: ", weight: 0"}), sticky)) },
				func(int) { b.reload(w.service(w.with(nil), sticky)) }},
			{"drain of the backend",
				func(i int) { b.post("/v1/drain", w.called("web")+"/"+w.backend(i).String()) },
				func(i int) { b.post("/v1/undrain", w.called("web")+"/"+w.backend(i).String()) }},
		} {
			pinned := w.pin(t)
			stop := w.comesBack(t)
			tc.take(pinned)
			next := w.number(t, w.who(t))
			if next == pinned {
				t.Errorf("%s: the next connection went to the backend that is not ready", tc.name)
			}
			for range 5 {
				if now := w.number(t, w.who(t)); now != next {
					t.Errorf("%s: the client is not kept at the new backend", tc.name)
				}
			}
			tc.back(pinned)
			if now := w.number(t, w.who(t)); now != next {
				t.Errorf("%s: the client left its new backend for the old one", tc.name)
			}
			stop()
		}
	})
}

// A2: the backend of a client refuses but is still listed: another is tried, the
// client is kept there, and the failure is counted, once.
func TestAffinityRefused(t *testing.T) {
	bothPaths(t, 3, func(t *testing.T, w world) {
		var servers []*testnet.Server
		for _, b := range w.Backends {
			servers = append(servers, b.Serve(8080, testnet.Named(b.Name())))
		}
		b := start(t, w.Balancer, w.service(nil, sticky))
		pinned := w.pin(t)
		servers[pinned].Close()
		c, name := w.named(t)
		next := w.number(t, name)
		if next == pinned {
			t.Fatal("a closed server answered")
		}
		c.ends(t)
		if v := b.endedOf(c.LocalAddr()); v.Picked != flow.ByRetry || v.Backend != w.backend(next) {
			t.Errorf("the record says %s by %s, want %s by a retry", v.Backend, v.Picked, w.backend(next))
		}
		c, name = w.named(t)
		c.ends(t)
		if v := b.endedOf(c.LocalAddr()); w.number(t, name) != next || v.Picked != flow.ByAffinity {
			t.Errorf("the next connection went to %s by %s, want %s by affinity", v.Backend, v.Picked, w.backend(next))
		}
		w.Backends[pinned].Serve(8080, testnet.Named("back"))
		for range 6 {
			if now := w.who(t); now != name {
				t.Errorf("the client was at %s and came to %s", name, now)
			}
		}
		if row := b.row(w.backend(pinned).String()); row.Failures != 1 {
			t.Errorf("%d failures of the backend that refused once", row.Failures)
		}
		b.wantMetric(1, "baton_dial_failures_total", fmt.Sprintf("service=%q", w.called("web")), `reason="refused"`, fmt.Sprintf("backend=%q", w.backend(pinned)))
	})
}

// A3: the backend of a client drains: new flows go elsewhere, old ones stay and
// keep working.
func TestAffinityDraining(t *testing.T) {
	everyPath(t, 3, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, sticky))
		for _, byFile := range []bool{true, false} {
			old, name := w.named(t)
			pinned := w.number(t, name)
			w.carried(b, old.TCPConn)
			state := "drain"
			if byFile {
				state = w.state("drain")
				b.reload(w.service(w.with(map[int]string{pinned: ", state: drain"}), sticky))
			} else {
				b.post("/v1/drain", w.backend(pinned).String())
			}
			// A flow of the round before that the kernel carries may be seen to end a moment later.
			eventually(t, "the backend is shown as draining, with one flow", func() error {
				if row := b.row(w.backend(pinned).String()); row.State != state || row.Flows != 1 {
					return fmt.Errorf("it is shown as %+v", row)
				}
				return nil
			})
			young, name := w.named(t)
			if w.number(t, name) == pinned {
				t.Error("a new flow went to a draining backend")
			}
			for range 3 {
				old.works(t)
				young.works(t)
			}
			old.ends(t)
			young.ends(t)
			v := b.endedOf(old.LocalAddr())
			wantEnd(t, v, flow.ByClient, flow.ReasonClosed)
			w.wantPath(t, v)
			if byFile {
				b.reload(w.service(w.with(nil), sticky))
			}
		}
	})
}

// Affinity survives that all backends go and come back.
func TestAffinitySurvivesNoBackends(t *testing.T) {
	bothFamilies(t, 3, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, sticky))
		pinned := w.pin(t)
		b.reload(w.service([]string{}, sticky))
		eventually(t, "the VIP refuses", func() error { return w.refused(t, w.Client) })
		b.wantMetric(1, "baton_affinity_entries", fmt.Sprintf("service=%q", w.called("web")))
		back := w.with(nil)
		back[0], back[2] = back[2], back[0]
		b.reload(w.service(back, sticky))
		eventually(t, "the VIP serves", func() error { _, err := w.Client.AskName(w.vip); return err })
		if now := w.pin(t); now != pinned {
			t.Errorf("the client was at backend %d and is at %d", pinned, now)
		}
	})
}

// A client is forgotten a while after its last new flow, and not before.
func TestAffinityTimeout(t *testing.T) {
	const timeout = 1500 * time.Millisecond
	bothFamilies(t, 2, func(t *testing.T, w world) {
		t.Parallel()
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, fmt.Sprintf("affinity: {by: client-ip, timeout: %s}", timeout)))
		pick := func() flow.View {
			c, _ := w.named(t)
			c.ends(t)
			return b.endedOf(c.LocalAddr())
		}
		last := pick()
		for range 4 { // together longer than the timeout
			time.Sleep(timeout / 2)
			v := pick()
			if gap := v.StartedAt.Sub(last.StartedAt); gap < timeout && (v.Picked != flow.ByAffinity || v.Backend != last.Backend) {
				t.Errorf("%v after the last one a flow went to %s by %s", gap, v.Backend, v.Picked)
			}
			last = v
		}
		time.Sleep(timeout)
		if v := pick(); v.Picked != flow.ByAlgorithm {
			t.Errorf("%v after the last one a flow went to %s by %s", v.StartedAt.Sub(last.StartedAt), v.Backend, v.Picked)
		}
	})
}

// Clients are kept each for itself, and a service without affinity keeps none.
func TestAffinityOfSeveralClients(t *testing.T) {
	bothFamilies(t, 3, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, sticky))
		seen := map[string]bool{}
		for i := range 6 {
			from := w.AddClient(fmt.Sprintf("client%d", i))
			first, err := from.AskName(w.vip)
			for range 3 {
				again, err2 := from.AskName(w.vip)
				if err = errors.Join(err, err2); again != first {
					t.Errorf("%s was at %s and came to %s", from.Name(), first, again)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			seen[first] = true
		}
		if len(seen) != 3 {
			t.Errorf("six clients are kept at %v, want each backend", seen)
		}
		b.wantMetric(6, "baton_affinity_entries", fmt.Sprintf("service=%q", w.called("web")))
	})
}
