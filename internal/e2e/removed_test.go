package e2e

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// The paced transfer: a backend that sends this many pieces this far apart.
const (
	pieces    = 120
	pieceSize = 48 << 10
	pieceGap  = 50 * time.Millisecond
)

// paced says its name, then sends a stream slowly.
func paced(name string) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := io.WriteString(c, name+"\n"); err != nil {
			return
		}
		stream := testnet.Stream(7, pieces*pieceSize)
		tick := time.NewTicker(pieceGap)
		defer tick.Stop()
		for range pieces {
			<-tick.C
			if _, err := io.CopyN(c, stream, pieceSize); err != nil {
				return
			}
		}
	}
}

// B1: a backend is removed during a transfer, policy keep: the transfer ends
// well, and no new flow goes there.
func TestRemovedKeep(t *testing.T) {
	everyPath(t, 2, func(t *testing.T, w world) {
		var servers []*testnet.Server
		for _, h := range w.Backends {
			servers = append(servers, h.Serve(8080, paced(h.Name())))
		}
		b := start(t, w.Balancer, w.service(nil, "onBackendRemoved: keep"))
		c, name := w.named(t)
		gone := w.number(t, name)
		w.carried(b, c.TCPConn)
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		sum := make(chan string, 1)
		go func() {
			got, err := testnet.ReceiveBulk(c)
			sum <- fmt.Sprintf("%v, error %v", got, err)
		}()
		eventually(t, "the transfer is under way", func() error {
			if f := b.flows(); len(f) == 1 && f[0].BytesToClient > 5*pieceSize {
				return nil
			}
			return fmt.Errorf("flows: %+v", b.flows())
		})
		b.reload(w.service(w.without(gone), "onBackendRemoved: keep"))
		for range 6 {
			if got := w.number(t, w.who(t)); got == gone {
				t.Error("a new flow went to the backend that is gone")
			}
		}
		if n := servers[gone].Accepted(); n != 1 {
			t.Errorf("the backend that is gone has seen %d connections, want 1", n)
		}
		if got, want := <-sum, fmt.Sprintf("%v, error <nil>", testnet.StreamSum(7, pieces*pieceSize)); got != want {
			t.Errorf("the transfer: %s, want %s", got, want)
		}
		c.Close()
		v := b.endedOf(c.LocalAddr())
		wantEnd(t, v, flow.ByBackend, flow.ReasonClosed)
		w.wantPath(t, v)
		if v.Backend != w.backend(gone) {
			t.Errorf("the record names backend %s", v.Backend)
		}
	})
}

// B2: policy reset: the flows of a removed backend end at once, those of the
// others do not.
func TestRemovedReset(t *testing.T) {
	everyPath(t, 2, func(t *testing.T, w world) {
		w.serveNamed()
		const policy = "onBackendRemoved: reset"
		b := start(t, w.Balancer, w.service(nil, policy))
		for how, list := range map[string][]string{
			"gone": w.without(0),
			"down": w.with(map[int]string{0: ", state: down"}),
		} {
			removed, kept := w.at(t, 0), w.at(t, 1)
			w.carried(b, removed.TCPConn, kept.TCPConn)
			b.reload(w.service(list, policy))
			removed.wasReset(t)
			v := b.endedOf(removed.LocalAddr())
			wantEnd(t, v, flow.ByBaton, flow.ReasonBackendRemoved)
			w.wantPath(t, v)
			kept.works(t)
			kept.ends(t)
			b.wantFlows(0)
			if t.Failed() {
				t.Fatal(how)
			}
			b.reload(w.service(nil, policy))
		}
		// Draining is not being removed.
		c := w.at(t, 0)
		b.reload(w.service(w.with(map[int]string{0: ", state: drain"}), policy))
		c.works(t)
		c.ends(t)
		wantEnd(t, b.endedOf(c.LocalAddr()), flow.ByClient, flow.ReasonClosed)
	})
}

// B2: policy drain: the flows of a removed backend have their time and are reset
// when it is up.
func TestRemovedDrain(t *testing.T) {
	const timeout = 2 * time.Second
	everyPath(t, 2, func(t *testing.T, w world) {
		w.serveNamed()
		policy := []string{"onBackendRemoved: drain", fmt.Sprintf("drainTimeout: %s", timeout)}
		b := start(t, w.Balancer, w.service(nil, policy...))
		left, finished, kept := w.at(t, 0), w.at(t, 0), w.at(t, 1)
		w.carried(b, left.TCPConn, finished.TCPConn, kept.TCPConn)
		removed := time.Now()
		b.reload(w.service(w.without(0), policy...))
		if time.Since(removed) < timeout {
			left.works(t)
			finished.works(t)
		}
		finished.ends(t)
		wantEnd(t, b.endedOf(finished.LocalAddr()), flow.ByClient, flow.ReasonClosed)
		left.wasReset(t)
		v := b.endedOf(left.LocalAddr())
		wantEnd(t, v, flow.ByBaton, flow.ReasonDrainTimeout)
		w.wantPath(t, v)
		if had := v.EndedAt.Sub(removed); had < timeout {
			t.Errorf("the flow had %v, want %v", had, timeout)
		}
		kept.works(t)
	})
}

// B2: a backend that comes back within the drain time keeps its flows.
func TestRemovedAndBack(t *testing.T) {
	const timeout = 2 * time.Second
	bothFamilies(t, 2, func(t *testing.T, w world) {
		t.Parallel()
		w.serveNamed()
		policy := []string{"onBackendRemoved: drain", fmt.Sprintf("drainTimeout: %s", timeout)}
		b := start(t, w.Balancer, w.service(nil, policy...))
		c := w.at(t, 0)
		removed := time.Now()
		b.reload(w.service(w.without(0), policy...))
		b.reload(w.service(nil, policy...))
		if took := time.Since(removed); took > timeout {
			t.Skipf("the machine took %v for two reloads", took)
		}
		for time.Since(removed) < timeout+500*time.Millisecond {
			c.works(t)
			time.Sleep(50 * time.Millisecond)
		}
		c.ends(t)
		wantEnd(t, b.endedOf(c.LocalAddr()), flow.ByClient, flow.ReasonClosed)
	})
}

// B3: one address listed twice, draining and ready: ready wins, in any order of
// the list and of events.
func TestListedTwice(t *testing.T) {
	everyPath(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		ready := fmt.Sprintf("%q", w.backend(0))
		drain := fmt.Sprintf("{address: %s, state: drain}", ready)
		down := fmt.Sprintf("{address: %s, state: down}", ready)
		const policy = "onBackendRemoved: reset"
		b := start(t, w.Balancer, w.service([]string{drain, ready}, policy))
		c := w.at(t, 0)
		w.carried(b, c.TCPConn)
		for _, tc := range []struct {
			list  []string
			state string
		}{
			{[]string{drain, ready}, "ready"},
			{[]string{ready, drain}, "ready"},
			{[]string{drain}, "drain"},
			{[]string{ready, drain}, "ready"},
			{[]string{ready}, "ready"},
			{[]string{drain, ready, down}, "ready"},
			{[]string{down, drain}, "drain"},
			{[]string{down, ready}, "ready"},
		} {
			if tc.list[0] != drain || len(tc.list) != 2 {
				b.reload(w.service(tc.list, policy))
			}
			if row := b.row(w.backend(0).String()); row.State != w.state(tc.state) {
				t.Errorf("%v: the backend is %s, want %s", tc.list, row.State, w.state(tc.state))
			}
			if n := len(b.backends()); n != 1 {
				t.Errorf("%v: %d backends are shown", tc.list, n)
			}
			eventually(t, "new flows are taken as they should", func() error {
				if tc.state == "ready" || w.objects { // Kubernetes uses those on their way out where there is nothing better
					_, err := w.Client.AskName(w.vip)
					return err
				}
				return w.refused(t, w.Client)
			})
			c.works(t)
		}
		c.ends(t)
		wantEnd(t, b.endedOf(c.LocalAddr()), flow.ByClient, flow.ReasonClosed)
	})
}

// A service is deleted while flows run: they end as its policy says, and its
// address refuses or is unknown at once.
func TestServiceDeleted(t *testing.T) {
	for _, tc := range []struct {
		policy string
		reason flow.Reason
	}{
		{"keep", flow.ReasonClosed},
		{"drain", flow.ReasonDrainTimeout},
		{"reset", flow.ReasonServiceRemoved},
	} {
		t.Run(tc.policy, func(t *testing.T) {
			bothPaths(t, 1, func(t *testing.T, w world) {
				w.serveNamed()
				b := start(t, w.Balancer, w.service(nil, "onBackendRemoved: "+tc.policy, "drainTimeout: 1s"))
				c, _ := w.named(t)
				c.works(t)
				w.carried(b, c.TCPConn)
				deleted := time.Now()
				b.reload("services: []\n")
				eventually(t, "the VIP takes no connection", func() error { return w.unreachable(t) })
				if tc.policy == "keep" || tc.policy == "drain" && time.Since(deleted) < time.Second {
					c.works(t)
				}
				if tc.policy == "keep" {
					c.ends(t)
					wantEnd(t, b.endedOf(c.LocalAddr()), flow.ByClient, flow.ReasonClosed)
				} else {
					c.wasReset(t)
					wantEnd(t, b.endedOf(c.LocalAddr()), flow.ByBaton, tc.reason)
				}
				b.noRoutes(w)
			})
		})
	}
}

// A frontend is taken from its service while flows run through it: they go on.
func TestFrontendRemoved(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil))
		c, _ := w.named(t)
		other := w
		other.vip = w.otherVIP()
		b.reload(other.service(nil))
		eventually(t, "the new VIP serves", func() error { _, err := w.Client.AskName(other.vip); return err })
		eventually(t, "the old VIP takes no connection", func() error { return w.unreachable(t) })
		c.works(t)
		c.ends(t)
		wantEnd(t, b.endedOf(c.LocalAddr()), flow.ByClient, flow.ReasonClosed)
	})
}
