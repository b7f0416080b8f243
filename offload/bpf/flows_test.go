package bpf

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// road is a balancer between a client and a backend, with the program on its devices.
type road struct {
	*testnet.Star
	backend *testnet.Host
	flows   *Flows
	made    uint16 // flows, each with ports of its own
}

func newFlows(t testing.TB, h *testnet.Host, o FlowsOptions) (f *Flows) {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var err error
	h.Do(func() { f, err = OpenFlows(o) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func newRoad(t testing.TB, o FlowsOptions) *road {
	t.Helper()
	r := &road{Star: testnet.NewStar(t, 1)}
	r.backend = r.Backends[0]
	r.flows = newFlows(t, r.Balancer, o)
	if err := r.flows.AttachAll(); err != nil {
		t.Fatal(err)
	}
	return r
}

// eachFamily runs a test over IPv4 and IPv6.
func eachFamily(t *testing.T, f func(t *testing.T, ipv6 bool)) {
	for _, ipv6 := range []bool{false, true} {
		t.Run(map[bool]string{false: "IPv4", true: "IPv6"}[ipv6], func(t *testing.T) { f(t, ipv6) })
	}
}

// The ports of a flow.
const (
	frontendPort = 8000 + iota
	backendPort
	clientPorts = 50000 // and on
	localPorts  = 40000 // and on
)

func (r *road) spec(proto flow.Proto, ipv6 bool) FlowSpec {
	link := r.BackendLinks[0]
	r.made++
	clientPort, localPort := clientPorts+r.made, localPorts+r.made
	if ipv6 {
		return FlowSpec{
			Proto: proto, Client: netip.AddrPortFrom(r.Client.IP6, clientPort), Frontend: netip.AddrPortFrom(r.Balancer.IP6, frontendPort),
			Local: netip.AddrPortFrom(link.A.IP6, localPort), Backend: netip.AddrPortFrom(link.B.IP6, backendPort),
		}
	}
	return FlowSpec{
		Proto: proto, Client: netip.AddrPortFrom(r.Client.IP4, clientPort), Frontend: netip.AddrPortFrom(r.Balancer.IP4, frontendPort),
		Local: netip.AddrPortFrom(link.A.IP4, localPort), Backend: netip.AddrPortFrom(link.B.IP4, backendPort),
	}
}

// offset is how one side's numbers differ from the other's, both ways.
type offset struct {
	toBackend, toClient     uint32 // of sequence numbers
	toBackendTS, toClientTS uint32 // of timestamps
}

func (o offset) set(w *Flow) {
	w.SetRewrite(ToBackend, Rewrite{Seq: o.toBackend, Ack: -o.toClient, TSval: o.toBackendTS, TSecr: -o.toClientTS})
	w.SetRewrite(ToClient, Rewrite{Seq: o.toClient, Ack: -o.toBackend, TSval: o.toClientTS, TSecr: -o.toBackendTS})
}

// add puts a flow in that is forwarded from its first packet on: then the numbers differ all the time by what is said here.
func (r *road) add(t testing.TB, s FlowSpec, o offset) *Flow {
	t.Helper()
	w, err := r.flows.Add(s, GateWatch)
	if err != nil {
		t.Fatal(err)
	}
	o.set(w)
	w.SetGate(GateForward)
	t.Cleanup(func() {
		if err := w.Delete(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// dial connects the client to the frontend from the flow's port.
func (r *road) dial(t testing.TB, s FlowSpec) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := r.Client.DialContext(ctx, s.Proto.String(), s.Client, s.Frontend)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// listen accepts the backend's side of the flow.
func (r *road) listen(t testing.TB, s FlowSpec) net.Listener {
	t.Helper()
	ln, err := r.backend.Listen("tcp", s.Backend)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// connect makes both sides of a flow, which is in the kernel already.
func (r *road) connect(t testing.TB, s FlowSpec) (client, backend *net.TCPConn) {
	t.Helper()
	ln := r.listen(t, s)
	client = r.dial(t, s).(*net.TCPConn)
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if got := b.RemoteAddr().String(); got != s.Local.String() {
		t.Errorf("the backend sees %s, want %s", got, s.Local)
	}
	t.Cleanup(func() { _ = client.Close(); _ = b.Close() })
	return client, b.(*net.TCPConn)
}

// exchange sends n bytes each way at once, closes, and compares.
func exchange(t testing.TB, client, backend *net.TCPConn, n int64) {
	t.Helper()
	type result struct {
		sum testnet.Sum
		err error
	}
	send := func(c *net.TCPConn, seed uint64) <-chan result {
		done := make(chan result, 1)
		go func() {
			sum, err := testnet.SendBulk(c, seed, n)
			if err == nil {
				err = c.CloseWrite()
			}
			done <- result{sum, err}
		}()
		return done
	}
	receive := func(c *net.TCPConn) <-chan result {
		done := make(chan result, 1)
		go func() {
			sum, err := testnet.ReceiveBulk(c)
			done <- result{sum, err}
		}()
		return done
	}
	deadline := time.Now().Add(20 * time.Second)
	_, _ = client.SetDeadline(deadline), backend.SetDeadline(deadline)
	up, down, atBackend, atClient := send(client, 1), send(backend, 2), receive(backend), receive(client)
	for what, pair := range map[string][2]<-chan result{"up": {up, atBackend}, "down": {down, atClient}} {
		sent, got := <-pair[0], <-pair[1]
		if sent.err != nil || got.err != nil || sent.sum != got.sum || got.sum.Bytes != n {
			t.Errorf("%s: sent %s, %v; received %s, %v", what, sent.sum, sent.err, got.sum, got.err)
		}
	}
}

func (r *road) counts(t testing.TB) map[FlowCount]uint64 {
	t.Helper()
	c, err := r.flows.Counts()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// offsets are small, and such that everything wraps.
var offsets = map[string]offset{
	"as it is":  {},
	"by a bit":  {toBackend: 1000, toClient: 7, toBackendTS: 3, toClientTS: 100},
	"far apart": {toBackend: 0xfff00000, toClient: 0x80000001, toBackendTS: 0x7fffff00, toClientTS: 0x12345678},
}

func TestForwardTCP(t *testing.T) {
	n := testnet.Scaled(4 << 20)
	r := newRoad(t, FlowsOptions{Capacity: 4})
	eachFamily(t, func(t *testing.T, ipv6 bool) {
		for name, o := range offsets {
			t.Run(name, func(t *testing.T) {
				s := r.spec(flow.TCP, ipv6)
				w := r.add(t, s, o)
				client, backend := r.connect(t, s)
				exchange(t, client, backend, int64(n))
				state := w.State()
				for d, dir := range state.Directions {
					if dir.Bytes != uint64(n) || !dir.FINAcked || dir.Reset || dir.Packets == 0 || dir.At == 0 {
						t.Errorf("%s: %+v", Direction(d), dir)
					}
				}
				if !state.Over() {
					t.Error("the flow is not over")
				}
			})
		}
	})
	c := r.counts(t)
	for _, none := range []FlowCount{FlowsOwn, FlowsNoWay, FlowsFailed, FlowsOdd, FlowsTooBig, FlowsReset, FlowsHeld, FlowsUntold} {
		if c[none] != 0 {
			t.Errorf("%s: %d", none, c[none])
		}
	}
}

// TestForwardLossy makes the sides use selective acknowledgements.
func TestForwardLossy(t *testing.T) {
	n := testnet.Scaled(2 << 20)
	r := newRoad(t, FlowsOptions{Capacity: 4})
	r.Client.TCP(testnet.TCPSpec{})
	loss := r.BackendLinks[0].B.Lose(10)
	defer loss.Stop()
	eachFamily(t, func(t *testing.T, ipv6 bool) {
		s := r.spec(flow.TCP, ipv6)
		w := r.add(t, s, offsets["far apart"])
		client, backend := r.connect(t, s)
		exchange(t, client, backend, int64(n))
		for d, dir := range w.State().Directions {
			if dir.Bytes != uint64(n) {
				t.Errorf("%s: %d bytes, want %d", Direction(d), dir.Bytes, n)
			}
		}
	})
}

func TestForwardUDP(t *testing.T) {
	r := newRoad(t, FlowsOptions{Capacity: 4})
	eachFamily(t, func(t *testing.T, ipv6 bool) {
		s := r.spec(flow.UDP, ipv6)
		w := r.add(t, s, offset{})
		backend, err := r.backend.ListenPacket("udp", s.Backend)
		if err != nil {
			t.Fatal(err)
		}
		defer backend.Close()
		client := r.dial(t, s)
		defer client.Close()
		deadline := time.Now().Add(5 * time.Second)
		_, _ = client.SetDeadline(deadline), backend.SetDeadline(deadline)
		for i := range 50 {
			sent := fmt.Sprint("datagram ", i)
			if _, err := io.WriteString(client, sent); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 64)
			n, from, err := backend.ReadFrom(b)
			if err != nil || string(b[:n]) != sent || from.String() != s.Local.String() {
				t.Fatalf("the backend received %q from %v, %v", b[:n], from, err)
			}
			if _, err := backend.WriteTo(b[:n], from); err != nil {
				t.Fatal(err)
			}
			if n, err := client.Read(b); err != nil || string(b[:n]) != sent {
				t.Fatalf("the client received %q, %v", b[:n], err)
			}
		}
		for d, dir := range w.State().Directions {
			if dir.Packets != 50 || dir.Bytes != 40*uint64(len("datagram xx"))+10*uint64(len("datagram x")) {
				t.Errorf("%s: %+v", Direction(d), dir)
			}
		}
	})
}
