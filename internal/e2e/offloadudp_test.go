package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
)

// A UDP session in the kernel is counted as one in userspace is, and moves between
// the two without losing count.
func TestOffloadUDPCounters(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.offload = "offload: {mode: auto, afterBytes: 4KiB, afterAge: 0s}"
		serveUDP(t, w.Backends[0], w.backend(0), named("backend"))
		b := start(t, w.Balancer, w.udpService(nil))
		c := w.udp(t, w.vip)
		var sent, got uint64
		rounds := 0
		round := func() {
			data := bytes.Repeat([]byte{byte(rounds)}, rounds%1400)
			answer, err := exchange(c, data)
			if err != nil || !bytes.HasSuffix(answer, data) {
				t.Fatalf("round %d: %d bytes, %v", rounds, len(answer), err)
			}
			rounds++
			sent, got = sent+uint64(len(data)), got+uint64(len(answer))
		}
		eventually(t, "it is in the kernel", func() error {
			round()
			if v := b.flowOf(c.LocalAddr()); v.Path != flow.PathBPF || v.State != flow.Offloaded {
				return fmt.Errorf("%+v", v)
			}
			return nil
		})
		if sent+got < 4<<10 {
			t.Errorf("it left userspace after %d bytes", sent+got)
		}
		for range 300 {
			round()
		}
		eventually(t, "all is counted", func() error {
			v := b.flowOf(c.LocalAddr())
			if v.BytesToBackend != sent || v.BytesToClient != got || v.PacketsToBackend != uint64(rounds) || v.PacketsToClient != uint64(rounds) {
				return fmt.Errorf("%d rounds, %d and %d bytes are shown as %+v", rounds, sent, got, v)
			}
			return nil
		})
		if out, err := b.command(w.Balancer, "reset", b.flowOf(c.LocalAddr()).ID.String()); err != nil {
			t.Fatalf("reset: %v: %s", err, out)
		}
		v := b.endedOf(c.LocalAddr())
		wantEnd(t, v, flow.ByBaton, flow.ReasonAdminReset)
		if v.BytesToBackend != sent || v.BytesToClient != got || v.Path != flow.PathBPF {
			t.Errorf("%d and %d bytes are recorded as %+v", sent, got, v)
		}
		// The next datagram begins a session.
		if _, err := exchange(c, []byte("again")); err != nil {
			t.Error(err)
		}
		if now := b.flowOf(c.LocalAddr()); now.ID == v.ID {
			t.Error("a flow that was reset is there again")
		}
	})
}

// The backend of a session in the kernel closes its port: the session goes to the
// other one.
func TestOffloadUDPBackendDies(t *testing.T) {
	bothFamilies(t, 2, func(t *testing.T, w world) {
		w.offload = inKernel
		servers := []*udpServer{serveUDP(t, w.Backends[0], w.backend(0), named("a")), serveUDP(t, w.Backends[1], w.backend(1), named("b"))}
		b := start(t, w.Balancer, w.udpService(nil))
		c := w.udp(t, w.vip)
		w.meets(t, b, c)
		first := 0
		if b.flowOf(c.LocalAddr()).Backend == w.backend(1) {
			first = 1
		}
		servers[first].close()
		other := []string{"b ", "a "}[first]
		eventually(t, "the other backend answers", func() error {
			got, err := try(c)
			if err == nil && !strings.HasPrefix(string(got), other) {
				err = errors.New(string(got))
			}
			return err
		})
		w.carriedUDP(b, c)
		if v := b.flowOf(c.LocalAddr()); v.Backend != w.backend(1-first) {
			t.Errorf("it is shown as %+v", v)
		}
	})
}
