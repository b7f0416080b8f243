package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// crowd is many connections to echo servers, and what each of them has sent.
type crowd struct {
	world
	b     *baton
	conns []*net.TCPConn
	sent  []int64
}

// gather opens n connections and has each echo a line.
func (w world) gather(t *testing.T, b *baton, n int) *crowd {
	t.Helper()
	k := &crowd{world: w, b: b, conns: make([]*net.TCPConn, n), sent: make([]int64, n)}
	t.Cleanup(k.close)
	parallel(n, func(i int) {
		c, err := w.Client.Dial("tcp", w.vip)
		if err != nil {
			t.Errorf("connection %d: %v", i, err)
			return
		}
		k.conns[i] = c.(*net.TCPConn)
	})
	if t.Failed() {
		t.FailNow()
	}
	k.echo(t, 1)
	return k
}

// echo sends rounds of random sizes on every connection and checks what comes back.
func (k *crowd) echo(t *testing.T, rounds int) {
	t.Helper()
	parallel(len(k.conns), func(i int) {
		for range rounds {
			if err := k.echoOne(i); err != nil {
				t.Errorf("connection %d (%s): %v", i, k.conns[i].LocalAddr(), err)
				return
			}
		}
	})
}

func (k *crowd) echoOne(i int) error {
	n := 1 + rand.Int64N(8<<10)
	k.sent[i] += n
	c := k.conns[i]
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	seed := rand.Uint64()
	if _, err := testnet.SendBulk(c, seed, n); err != nil {
		return err
	}
	sum, err := testnet.ReceiveBulk(io.LimitReader(c, n))
	if err == nil && sum != testnet.StreamSum(seed, n) {
		err = fmt.Errorf("of %d bytes %v came back", n, sum)
	}
	return err
}

// carried waits until all of them are carried as they are to be.
func (k *crowd) carried() []flow.View { return k.world.carried(k.b, k.conns...) }

// finish closes one side of each, waits for the other, and checks the records.
func (k *crowd) finish(t *testing.T) {
	t.Helper()
	parallel(len(k.conns), func(i int) {
		c := k.conns[i]
		_ = c.CloseWrite()
		if n, err := readEnd(c, 30*time.Second); n != 0 || err != nil {
			t.Errorf("connection %d: the end: %d bytes, %v", i, n, err)
		}
	})
	k.b.noFlows()
	ended := make(map[string]flow.View)
	for _, v := range k.b.ended() {
		ended[v.Client.String()] = v
	}
	for i, c := range k.conns {
		v, ok := ended[c.LocalAddr().String()]
		if !ok && len(ended) < len(k.conns) {
			continue // the list of ended flows is bounded
		}
		if v.Reason != flow.ReasonClosed || v.EndedBy != flow.ByClient || v.BytesToBackend != uint64(k.sent[i]) || v.BytesToClient != uint64(k.sent[i]) {
			t.Errorf("connection %d has carried %d bytes each way and is recorded as %+v", i, k.sent[i], v)
		}
	}
}

func (k *crowd) close() {
	for _, c := range k.conns {
		if c != nil {
			c.Close()
		}
	}
}

// noFlows waits until nothing is open any more.
func (b *baton) noFlows() {
	b.t.Helper()
	testnet.Eventually(b.t, 30*time.Second, "no flow is open", func() error {
		if n := b.metric("baton_flows_active"); n != 0 {
			return fmt.Errorf("%v are", n)
		}
		return nil
	})
}

// busy is a crowd that echoes without pause.
type busy struct {
	rounds      atomic.Int64 // each is an echo of every connection
	done, ended chan struct{}
}

// echoing has every connection echo again and again until stop is called.
func (k *crowd) echoing(t *testing.T) *busy {
	e := &busy{done: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(e.ended)
		for !t.Failed() {
			select {
			case <-e.done:
				return
			default:
				k.echo(t, 1)
				e.rounds.Add(1)
			}
		}
	}()
	return e
}

// more waits for whole rounds that begin from now on.
func (e *busy) more(t *testing.T, n int64) {
	t.Helper()
	until := e.rounds.Load() + 1 + n
	testnet.Eventually(t, 2*time.Minute, "all connections echo", func() error {
		if now := e.rounds.Load(); now < until && !t.Failed() {
			return fmt.Errorf("%d rounds are missing", until-now)
		}
		return nil
	})
	if t.Failed() {
		<-e.ended
		t.FailNow()
	}
}

// stop returns how many rounds there were.
func (e *busy) stop() int64 { close(e.done); <-e.ended; return e.rounds.Load() }

// many hands a crowd over and ends it.
func (w world) many(t *testing.T, n int) {
	t.Helper()
	w.offload = inKernel
	w.Backends[0].Serve(8080, thriftyMirror)
	atClient, atBackend := w.wire(t, w.ClientLink.B), w.wire(t, w.BackendLinks[0].B)
	b := start(t, w.Balancer, w.service(nil))
	k := w.gather(t, b, n)
	k.carried()
	w.noSockets(t)
	k.echo(t, 3)
	atClient.noEnd(t)
	atBackend.noEnd(t)
	k.finish(t)
	atClient.noReset(t)
	atBackend.noReset(t)
	for side, at := range map[string]wire{"client": atClient, "backend": atBackend} {
		if sent, received := at.ends(t); sent != n || received != n {
			t.Errorf("the %s has sent the end of %d connections and received that of %d, want %d", side, sent, received, n)
		}
	}
	if done := b.metric("baton_handoffs_total", `path="bpf"`, `result="done"`); done != float64(n) {
		t.Errorf("%v handoffs are counted, want %d", done, n)
	}
}

// thriftyMirror is a mirror with a small buffer, for many connections.
func thriftyMirror(c net.Conn) {
	_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 4<<10))
	_ = c.(*net.TCPConn).CloseWrite()
}

// Many connections are handed over, echo, and end; none is lost, nobody sees a reset
// or an early end, and the balancer has no sockets meanwhile.
func TestOffloadMany(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) { w.many(t, 500) })
}

// TestSoakOffloadMany is the same with as many as the descriptors of a test allow.
func TestSoakOffloadMany(t *testing.T) {
	soak(t)
	bothFamilies(t, 1, func(t *testing.T, w world) { w.many(t, 2000) })
}

// Both sides reset, or close, flows that have left userspace early or late; each
// sees what the other did.
func TestOffloadEnds(t *testing.T) {
	families(t, "Early", inKernel, 1, func(t *testing.T, w world) { w.endsOnTheWire(t) })
	families(t, "Late", whenTold, 1, func(t *testing.T, w world) { w.endsOnTheWire(t) })
}

// endsOnTheWire hands connections over and ends them in every order; the wires show
// the ends of the peers and nothing else.
func (w world) endsOnTheWire(t *testing.T) {
	t.Helper()
	end := make(chan func(net.Conn))
	w.Backends[0].Serve(8080, func(c net.Conn) {
		line, _ := testnet.ReadName(c)
		_, _ = io.WriteString(c, line+"\n")
		if how, ok := <-end; ok {
			how(c)
		}
	})
	t.Cleanup(func() { close(end) })
	b := start(t, w.Balancer, w.service(nil))
	reader := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	closer := func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite(); reader(c) }
	for _, tc := range []struct {
		name           string
		backend        func(net.Conn)
		client         func(*net.TCPConn) error // what its end is
		by             flow.By
		reason         flow.Reason
		resets, closes bool // what the wire may show
	}{
		{"the client closes", reader, func(c *net.TCPConn) error { return clean(c, true) }, flow.ByClient, flow.ReasonClosed, false, true},
		{"the backend closes", closer, func(c *net.TCPConn) error { return clean(c, false) }, flow.ByBackend, flow.ReasonClosed, false, true},
		{"the client resets", reader, func(c *net.TCPConn) error { testnet.Reset(c); return nil }, flow.ByClient, flow.ReasonReset, true, false},
		{"the backend resets", testnet.Reset, wasReset, flow.ByBackend, flow.ReasonReset, true, false},
	} {
		atClient, atBackend := w.wire(t, w.ClientLink.B), w.wire(t, w.BackendLinks[0].B)
		c := &conn{w.dial(t)}
		c.works(t)
		if w.offload == whenTold {
			w.handOff(b, c.LocalAddr())
		}
		b.inKernelNow(c.LocalAddr())
		w.noSockets(t)
		atClient.noEnd(t)
		atBackend.noEnd(t)
		addr := c.LocalAddr()
		end <- tc.backend
		if err := tc.client(c.TCPConn); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		wantEnd(t, b.endedOf(addr), tc.by, tc.reason)
		for _, at := range []wire{atClient, atBackend} {
			if !tc.resets {
				at.noReset(t)
			}
			if sent, received := at.ends(t); !tc.closes && sent+received > 0 || tc.closes && (sent != 1 || received != 1) {
				t.Errorf("%s: at the %s %d ends were sent and %d received", tc.name, at.port.Host.Name(), sent, received)
			}
		}
	}
}

// clean ends a connection, first or after the other side, without a reset.
func clean(c *net.TCPConn, first bool) error {
	if first {
		_ = c.CloseWrite()
	}
	n, err := readEnd(c, 10*time.Second)
	if n != 0 {
		err = fmt.Errorf("%d bytes before the end, %v", n, err)
	}
	_ = c.Close()
	return err
}

// wasReset is nil when a connection ends with a reset.
func wasReset(c *net.TCPConn) error {
	if _, err := readEnd(c, 10*time.Second); !isReset(err) {
		return fmt.Errorf("it ended with %v, want a reset", err)
	}
	return nil
}
