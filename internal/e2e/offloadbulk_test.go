package e2e

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// bulk is transfers that begin in userspace and end in the kernel.
type bulk struct {
	world
	b       *baton
	streams chan stream // those of the next connection, for the backend
	told    bool        // the flow leaves when the command says so
}

// stream is what the two ends of a connection have seen of its two directions.
type stream struct {
	up, down bool          // which are used
	handed   chan struct{} // closed when the kernel carries it
	rest     int64         // bytes that follow then
	sums     chan [2]testnet.Sum
}

// newBulk serves transfers.
func (w world) newBulk(t *testing.T, offload string, flags ...string) *bulk {
	t.Helper()
	k := &bulk{world: w, streams: make(chan stream, 1), told: offload == whenTold}
	k.offload = offload
	w.Backends[0].Serve(8080, func(c net.Conn) {
		s := <-k.streams
		got, sent, err := s.run(c, s.down, 1)
		if err != nil {
			t.Errorf("the backend: %v", err)
		}
		s.sums <- [2]testnet.Sum{got, sent}
	})
	k.b = start(t, w.Balancer, k.service(nil), flags...)
	return k
}

// run sends a stream if it is to, reads the other, and closes this side's half.
func (s stream) run(c net.Conn, send bool, seed uint64) (got, sent testnet.Sum, err error) {
	var wg sync.WaitGroup
	var sendErr error
	wg.Go(func() {
		if send {
			sent, sendErr = testnet.CopySum(c, &until{endless(seed), s.handed, s.rest})
		} else {
			<-s.handed // or this side would have closed before
		}
		_ = c.(*net.TCPConn).CloseWrite()
	})
	got, err = testnet.ReceiveBulk(c)
	wg.Wait()
	if err == nil {
		err = sendErr
	}
	return got, sent, err
}

// transfer runs one connection from userspace into the kernel and to its end. It
// returns the record.
func (k *bulk) transfer(t *testing.T, up, down bool, rest int64) flow.View {
	t.Helper()
	s := stream{up: up, down: down, handed: make(chan struct{}), rest: rest, sums: make(chan [2]testnet.Sum, 1)}
	k.streams <- s
	c := k.dial(t)
	_ = c.SetDeadline(time.Now().Add(5 * time.Minute))
	var got, sent testnet.Sum
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, sent, err = s.run(c, s.up, 2)
	}()
	before := k.handedInTheMiddle(t, c)
	close(s.handed)
	<-done
	if err != nil {
		t.Errorf("the client: %v", err)
	}
	backend := <-s.sums
	if sent != backend[0] && up || got != backend[1] && down {
		t.Errorf("up: sent %v, arrived %v; down: sent %v, arrived %v", sent, backend[0], backend[1], got)
	}
	v := k.b.endedOf(c.LocalAddr())
	if v.Path != flow.PathBPF || v.Reason != flow.ReasonClosed || v.BytesToBackend != uint64(sent.Bytes) || v.BytesToClient != uint64(got.Bytes) {
		t.Errorf("%d bytes up and %d down are recorded as %+v", sent.Bytes, got.Bytes, v)
	}
	t.Logf("%s: in the kernel after %d bytes and %v, then %d more bytes up and %d down in %v", name(up, down), before.BytesToBackend+before.BytesToClient,
		before.HandedOffAt.Sub(before.StartedAt), v.BytesToBackend-before.BytesToBackend, v.BytesToClient-before.BytesToClient, v.EndedAt.Sub(before.HandedOffAt))
	return v
}

// handedInTheMiddle waits until a connection that carries something is handed over.
func (k *bulk) handedInTheMiddle(t *testing.T, c net.Conn) flow.View {
	t.Helper()
	testnet.Eventually(t, 30*time.Second, "the transfer is under way", func() error {
		if v := k.b.flowOf(c.LocalAddr()); v.BytesToBackend+v.BytesToClient < 1<<20 {
			return fmt.Errorf("it is not: %+v", v)
		}
		return nil
	})
	if k.told {
		k.handOff(k.b, c.LocalAddr())
	}
	return k.b.inKernelNow(c.LocalAddr())[0]
}

func name(up, down bool) string {
	switch {
	case up && down:
		return "both"
	case up:
		return "up"
	}
	return "down"
}

// directions runs a transfer each way and both ways.
func (k *bulk) directions(t *testing.T, rest int64) {
	t.Helper()
	for _, d := range []struct{ up, down bool }{{true, false}, {false, true}, {true, true}} {
		k.transfer(t, d.up, d.down, rest)
	}
}

// Transfers at full speed are handed over in the middle, by themselves and by the
// command; every byte arrives, and is counted once.
func TestOffloadBulk(t *testing.T) {
	for name, offload := range map[string]string{"ByItself": whenBusy, "ByCommand": whenTold} {
		families(t, name, "", 1, func(t *testing.T, w world) {
			atClient, atBackend := w.wire(t, w.ClientLink.B), w.wire(t, w.BackendLinks[0].B)
			k := w.newBulk(t, offload)
			k.directions(t, scaled[int64](200<<20))
			atClient.noReset(t)
			atBackend.noReset(t)
			if n := k.b.metric("baton_handoffs_total", `path="bpf"`, `result="done"`); n != 3 {
				t.Errorf("%v handoffs are counted, want 3", n)
			}
		})
	}
}

// The same over links that lose packets, both ways and before and after the handoff.
func TestOffloadBulkWithLoss(t *testing.T) {
	for _, perThousand := range []int{10, 30} {
		families(t, fmt.Sprintf("Lose%d", perThousand), "", 1, func(t *testing.T, w world) {
			t.Parallel()
			k := w.newBulk(t, whenBusy)
			for _, p := range []testnet.Port{w.ClientLink.B, w.BackendLinks[0].B} {
				p.NoOffloads() // or a lost packet were half a window
				loss := p.Lose(perThousand)
				defer func() {
					if out, in := loss.Dropped(); out == 0 || in == 0 {
						t.Errorf("%s lost %d packets that left and %d that arrived", p.Host.Name(), out, in)
					}
				}()
			}
			k.directions(t, scaled[int64](40<<20))
		})
	}
}

// The same with packets as they are on a wire: one segment each, with its checksum.
func TestOffloadBulkWithoutNICHelp(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		for _, l := range []testnet.Link{w.ClientLink, w.BackendLinks[0]} {
			l.A.NoOffloads()
			l.B.NoOffloads()
		}
		k := w.newBulk(t, whenBusy)
		before := w.checksumErrors(t)
		k.directions(t, scaled[int64](100<<20))
		if after := w.checksumErrors(t); after != before {
			t.Errorf("checksum errors at the ends: %q, before %q", after, before)
		}
	})
}

// checksumErrors are those that the ends have counted.
func (w world) checksumErrors(t *testing.T) string {
	t.Helper()
	var found []string
	for _, h := range append(w.Backends[:1:1], w.Client) {
		found = append(found, h.Name()+" "+counter(t, h, "snmp", "Tcp:", "InCsumErrors"))
	}
	return strings.Join(found, ", ")
}

// Sequence numbers wrap after the handoff, in both directions.
func TestSoakOffloadWrap(t *testing.T) {
	soak(t)
	bothFamilies(t, 1, func(t *testing.T, w world) {
		k := w.newBulk(t, whenBusy)
		k.directions(t, 4_500_000_000)
	})
}
