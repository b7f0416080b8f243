package bpf

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb/steer/program"
)

var onlyTCP = []flow.Proto{flow.TCP}

func (r *steerRoad) eventually(t testing.TB, what string, ok func(program.Flow) bool) program.Flow {
	t.Helper()
	var f program.Flow
	testnet.Eventually(t, patience, what, func() error {
		if f = r.only(t); !ok(f) {
			return fmt.Errorf("the flow is %+v", f)
		}
		return nil
	})
	return f
}

// TestSteerHalfClose: one side's end is passed on, and the other still talks.
func TestSteerHalfClose(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{})
	r.Backends[0].Serve(backendPort, func(c net.Conn) {
		_, _ = io.ReadAll(c)
		_, _ = io.WriteString(c, "bye\n")
	})
	eachSteered(t, onlyTCP, func(t *testing.T, k kind) {
		c := r.dial(t, r.program(t, k, program.ByTable, nil), netip.AddrPort{}).(*net.TCPConn)
		_, err := io.WriteString(c, "hello")
		must(t, err)
		r.eventually(t, "the flow is open", func(f program.Flow) bool { return f.State == program.Open })
		must(t, c.CloseWrite())
		if b, err := io.ReadAll(c); string(b) != "bye\n" || err != nil {
			t.Errorf("read %q, %v", b, err)
		}
		f := r.eventually(t, "the flow is over", func(f program.Flow) bool { return f.State == program.Closed })
		if f.ClosedBy != flow.ByClient || f.Reset || r.steer.Open(f.Backend) != 0 {
			t.Errorf("%+v, %d open", f, r.steer.Open(f.Backend))
		}
	})
}

// TestSteerPeersReset: a reset reaches the other side, and the flow is over.
func TestSteerPeersReset(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{})
	accepted := make(chan net.Conn, 1)
	r.Backends[0].Serve(backendPort, func(c net.Conn) { accepted <- c; testnet.Hold(c) })
	eachSteered(t, onlyTCP, func(t *testing.T, k kind) {
		vip := r.program(t, k, program.ByTable, nil)
		for _, by := range []flow.By{flow.ByClient, flow.ByBackend} {
			c := r.dial(t, vip, netip.AddrPort{})
			_, err := io.WriteString(c, "hello")
			must(t, err)
			backend := <-accepted
			if by == flow.ByClient {
				testnet.Reset(c)
			} else {
				r.eventually(t, "the flow is open", func(f program.Flow) bool { return f.State == program.Open })
				testnet.Reset(backend)
				if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the client reads: %v", err)
				}
			}
			f := r.eventually(t, "the flow is over", func(f program.Flow) bool { return f.State == program.Closed })
			if f.ClosedBy != by || !f.Reset {
				t.Errorf("%s has reset %+v", by, f)
			}
			r.deleteAll(t)
		}
	})
}

// TestSteerPortReuse: a client may use a port again at once, whoever closed first.
func TestSteerPortReuse(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{})
	first := true // who closes
	r.Backends[0].Serve(backendPort, func(c net.Conn) {
		_, _ = fmt.Fprintln(c, "hello")
		if !first {
			testnet.Hold(c)
		}
	})
	eachSteered(t, onlyTCP, func(t *testing.T, k kind) {
		if k.ipv6 == k.keep { // two of the four
			return
		}
		vip := r.program(t, k, program.ByTable, nil)
		from := netip.AddrPortFrom(k.of(r.ClientLink.B), 45000)
		for i := range 200 {
			c := r.dial(t, vip, from)
			if name, err := testnet.ReadName(c); name != "hello" || err != nil {
				t.Fatalf("connection %d: %q, %v", i, name, err)
			}
			if _, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Fatalf("connection %d: %v", i, err)
			}
			if i%2 == 0 {
				testnet.Reset(c)
			} else {
				must(t, c.(*net.TCPConn).SetLinger(0)) // as above, but by close
				must(t, c.Close())
			}
			r.eventually(t, "the flow is over", func(f program.Flow) bool { return f.State == program.Closed })
		}
	})
}

// TestSteerPortsOfClosed: when all ports of masked clients are used, those of flows that are over serve again.
func TestSteerPortsOfClosed(t *testing.T) {
	const ports = 4
	r := newSteerRoad(t, 1, FlowsOptions{Steer: SteerOptions{FirstPort: 60000, LastPort: 60000 + ports - 1}})
	r.Backends[0].Serve(backendPort, func(c net.Conn) { _, _ = fmt.Fprintln(c, "hello"); testnet.Hold(c) })
	eachSteered(t, onlyTCP, func(t *testing.T, k kind) {
		if k.keep {
			return
		}
		vip := r.program(t, k, program.ByTable, nil)
		for i := range 3 * ports {
			c := r.dial(t, vip, netip.AddrPort{})
			if name, err := testnet.ReadName(c); name != "hello" || err != nil {
				t.Fatalf("connection %d: %q, %v", i, name, err)
			}
			if i == 0 {
				continue // this one stays
			}
			testnet.Reset(c)
			testnet.Eventually(t, patience, "the flow is over", func() error {
				if n := r.steer.Open(1); n != 1 {
					return fmt.Errorf("%d are open", n)
				}
				return nil
			})
		}
		if all := r.all(t); len(all) > ports {
			t.Errorf("%d flows have %d ports", len(all), ports)
		}
	})
}

// TestSteerReset: both sides of a flow that userspace has ended hear of it.
func TestSteerReset(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{})
	accepted := make(chan net.Conn, 1)
	r.Backends[0].Serve(backendPort, func(c net.Conn) { accepted <- c; testnet.Hold(c) })
	eachSteered(t, onlyTCP, func(t *testing.T, k kind) {
		vip := r.program(t, k, program.ByTable, nil)
		c := r.dial(t, vip, netip.AddrPort{})
		_, err := io.WriteString(c, "hello")
		must(t, err)
		backend := <-accepted
		f := r.eventually(t, "the flow is open", func(f program.Flow) bool { return f.State == program.Open })
		must(t, r.steer.Reset(f.Ref))
		if f := r.only(t); f.State != program.Closed || !f.Reset || r.steer.Open(f.Backend) != 0 {
			t.Errorf("%+v", f)
		}
		for _, side := range []net.Conn{c, backend} {
			_, _ = io.WriteString(side, "anything")
			if side == c { // the backend is held by its handler
				if _, err := side.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the client reads: %v", err)
				}
			}
		}
		testnet.Eventually(t, patience, "the backend hears of it", func() error {
			if _, err := io.WriteString(backend, "x"); errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return errors.New("not yet")
		})
	})
}

// TestSteerDelete: only what is meant is deleted, and not what has been busy since.
func TestSteerDelete(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{})
	r.serve()
	eachSteered(t, tcpAndUDP, func(t *testing.T, k kind) {
		vip := r.program(t, k, program.ByTable, nil)
		c := r.dial(t, vip, netip.AddrPort{})
		whoAmI(t, c)
		r.eventually(t, "the flow is open", func(f program.Flow) bool { return f.State == program.Open })
		f := r.only(t)
		earlier := f
		earlier.Born--
		busy := f
		busy.LastSeen -= 1 << lastShift
		for what, w := range map[string]program.Flow{"an earlier flow": earlier, "a flow that was busy": busy} {
			if n, err := r.steer.Delete([]program.Flow{w}, what == "an earlier flow"); n != 0 || err != nil {
				t.Errorf("%s: deleted %d, %v", what, n, err)
			}
		}
		for _, want := range []int{1, 0} {
			if n, err := r.steer.Delete([]program.Flow{f}, true); n != want || err != nil {
				t.Errorf("deleted %d, want %d, %v", n, want, err)
			}
		}
		if n := elements(t, r.flows); n != 0 {
			t.Errorf("%d elements are left", n)
		}
	})
}

// TestSteerEvents: what happens to flows is told in order.
func TestSteerEvents(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{})
	r.Backends[0].Serve(backendPort, func(c net.Conn) {
		_, _ = io.ReadAll(c)
		_, _ = io.WriteString(c, "bye\n")
	})
	var mu sync.Mutex
	var heard []program.Event
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.steer.Events(func(e []program.Event) { mu.Lock(); heard = append(heard, e...); mu.Unlock() })
	}()
	testnet.Eventually(t, patience, "somebody listens", func() error {
		if r.steer.settings.Listened == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	r.steer.TellAll(true)
	eachSteered(t, onlyTCP, func(t *testing.T, k kind) {
		vip := r.program(t, k, program.ByTable, nil)
		mu.Lock()
		heard = nil
		mu.Unlock()
		c := r.dial(t, vip, netip.AddrPort{}).(*net.TCPConn)
		_, err := io.WriteString(c, "hello")
		must(t, err)
		must(t, c.CloseWrite())
		_, err = io.ReadAll(c)
		must(t, err)
		want := []program.Kind{program.Opened, program.HalfShut, program.Ended}
		testnet.Eventually(t, patience, "three events", func() error {
			mu.Lock()
			defer mu.Unlock()
			if len(heard) < len(want) {
				return fmt.Errorf("heard %+v", heard)
			}
			return nil
		})
		f := r.only(t)
		mu.Lock()
		defer mu.Unlock()
		for i, e := range heard {
			if e.Kind != want[i] || e.Flow.Ref != f.Ref || e.Flow.Local != f.Local || e.Flow.Address != f.Address || e.Flow.Backend != 1 || e.Flow.Service != theService {
				t.Errorf("event %d: %+v of %+v", i, e, f)
			}
		}
		if e := heard[2].Flow; e.ClosedBy != flow.ByClient || e.Counters.BytesToBackend != 5 || e.Counters.BytesToClient != 4 {
			t.Errorf("at the end %+v", e)
		}
	})
	must(t, r.flows.Close())
	<-done
}

// TestSteerUnreachable: a client of a backend that has no such port hears so.
func TestSteerUnreachable(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{})
	for _, h := range r.Backends {
		h.Sysctl("net.ipv4.icmp_ratelimit", "0")
		h.Sysctl("net.ipv6.icmp.ratelimit", "0")
	}
	eachSteered(t, tcpAndUDP, func(t *testing.T, k kind) {
		vip := r.program(t, k, program.ByTable, nil)
		if _, err := ask(r.Client, vip, errRefused); !errors.Is(err, errRefused) {
			t.Errorf("got %v", err)
		}
		if k.proto == flow.TCP {
			if f := r.only(t); f.State != program.Closed || f.ClosedBy != flow.ByBackend {
				t.Errorf("%+v", f)
			}
		}
	})
}
