package e2e

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// mirror sends back a stream while it comes in; unlike an Echo it holds no pipe.
func mirror(c net.Conn) {
	_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 64<<10))
	_ = c.(*net.TCPConn).CloseWrite()
}

// reflects sends a stream and checks that it comes back.
func reflects(c *net.TCPConn, seed uint64, n int64) error {
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	var wg sync.WaitGroup
	var sendErr error
	wg.Go(func() {
		if _, sendErr = testnet.SendBulk(c, seed, n); sendErr == nil {
			sendErr = c.CloseWrite()
		}
	})
	got, err := testnet.ReceiveBulk(c)
	wg.Wait()
	if err == nil {
		err = sendErr
	}
	if err == nil && got != testnet.StreamSum(seed, n) {
		err = fmt.Errorf("%v came back", got)
	}
	return err
}

// A client that asks again the moment it has an answer is never quiet, and is handed
// over all the same without waiting long.
func TestOffloadPingPong(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.offload = whenTold
		w.Backends[0].Serve(8080, mirror)
		b := start(t, w.Balancer, w.service(nil))
		c := w.dial(t)
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		stop, done := make(chan struct{}), make(chan time.Duration)
		rounds := 0
		go func() {
			var longest time.Duration
			defer func() { done <- longest }()
			ball := []byte{0}
			for ; ; rounds++ {
				select {
				case <-stop:
					return
				default:
				}
				began := time.Now()
				ball[0] = byte(rounds)
				if _, err := c.Write(ball); err != nil {
					t.Errorf("round %d: %v", rounds, err)
					return
				}
				if _, err := io.ReadFull(c, ball); err != nil || ball[0] != byte(rounds) {
					t.Errorf("round %d: %v, %v", rounds, ball, err)
					return
				}
				longest = max(longest, time.Since(began))
			}
		}()
		w.handOff(b, c.LocalAddr())
		before := b.inKernelNow(c.LocalAddr())[0]
		eventually(t, "the game goes on", func() error {
			if v := b.flowOf(c.LocalAddr()); v.BytesToClient < before.BytesToClient+500 {
				return fmt.Errorf("%d bytes, then %d", before.BytesToClient, v.BytesToClient)
			}
			return nil
		})
		close(stop)
		longest := <-done
		again := retransmitted(t, c)
		t.Logf("%d rounds, the longest took %v, the client sent %d segments again", rounds, longest, again)
		if again > 0 && longest > 150*time.Millisecond && !raceDetector {
			t.Errorf("the handoff cost a retransmission timeout: %d segments were sent again, and a round took %v", again, longest)
		}
		c.CloseWrite()
		if n, err := readEnd(c, 10*time.Second); n != 0 || err != nil {
			t.Errorf("the end: %d bytes, %v", n, err)
		}
		v := b.endedOf(c.LocalAddr())
		wantEnd(t, v, flow.ByClient, flow.ReasonClosed)
		if v.BytesToBackend != uint64(rounds) || v.BytesToClient != uint64(rounds) {
			t.Errorf("%d rounds are recorded as %+v", rounds, v)
		}
	})
}

// Every window scale a client can have meets another at its backend; the balancer's
// own is somewhere between, or above them all.
func TestOffloadWindowScales(t *testing.T) {
	const most = testnet.MaxWindowScale
	for name, scale := range map[string]int{"UsualBalancer": 10, "LargestBalancer": most} {
		families(t, name, inKernel, 1, func(t *testing.T, w world) {
			w.Balancer.TCP(testnet.TCPSpec{ReceiveMax: 32 << 10 << scale})
			var file strings.Builder
			file.WriteString("services:\n")
			for _, h := range []*testnet.Host{w.Client, w.Backends[0]} {
				h.TCP(testnet.TCPSpec{ReceiveMax: 32 << 10 << most})
			}
			for s := range most + 1 {
				at := w.port(uint16(100+s), uint16(9000+s))
				ln, err := w.Backends[0].ListenWith(&net.ListenConfig{Control: testnet.WindowScale(most - s)}, "tcp", at.at)
				if err != nil {
					t.Fatal(err)
				}
				srv := testnet.ServeListener(ln, mirror)
				t.Cleanup(srv.Close)
				file.WriteString(at.service(fmt.Sprint("s", s)))
			}
			b := start(t, w.Balancer, file.String())
			for s := range most + 1 {
				at := w.port(uint16(100+s), uint16(9000+s))
				c, err := w.Client.DialWith(t.Context(), &net.Dialer{Control: testnet.WindowScale(s)}, "tcp", at.vip)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				eventually(t, "the flow is judged", func() error {
					v := b.flowOf(c.LocalAddr())
					if v.Path != flow.PathBPF && v.NotOffloaded != flow.NotOffloadedWindow {
						return fmt.Errorf("%+v", v)
					}
					return nil
				})
				if err := reflects(c.(*net.TCPConn), uint64(s), 1<<20); err != nil {
					t.Errorf("the client's scale %d, the backend's %d: %v", s, most-s, err)
				}
				if v := b.endedOf(c.LocalAddr()); v.Path != flow.PathBPF && scale <= min(s, most-s) {
					t.Errorf("the client's scale %d, the backend's %d, ours %d: refused", s, most-s, scale)
				}
			}
		})
	}
}

// at is a frontend with a port of its own, and a backend for it.
type at struct {
	world
	at netip.AddrPort
}

func (w world) port(front, back uint16) at {
	w.vip = netip.AddrPortFrom(w.vip.Addr(), front)
	return at{w, netip.AddrPortFrom(w.addr(w.Backends[0]), back)}
}

func (a at) service(name string) string {
	return fmt.Sprintf("  - name: %s\n    frontends: [\"tcp://%s\"]\n    backends: [%q]\n    %s\n", name, a.vip, a.at, a.offload)
}

// A client without an option that the backend has is handed over: the backend is
// not offered it. What only the client has cannot be taken back from it.
func TestOffloadTCPOptions(t *testing.T) {
	type spec = testnet.TCPSpec
	for _, tc := range []struct {
		name            string
		client, backend spec
		stays           flow.NotOffloaded
	}{
		{"ClientWithoutTimestamps", spec{NoTimestamps: true}, spec{}, ""},
		{"ClientWithoutSACK", spec{NoSACK: true}, spec{}, ""},
		{"ClientWithoutBoth", spec{NoTimestamps: true, NoSACK: true}, spec{}, ""},
		{"ClientWithoutScaling", spec{NoWindowScaling: true}, spec{}, ""},
		{"BackendWithoutScaling", spec{}, spec{NoWindowScaling: true}, ""},
		{"NobodyHasTimestamps", spec{NoTimestamps: true}, spec{NoTimestamps: true}, ""},
		{"BackendWithoutTimestamps", spec{}, spec{NoTimestamps: true}, flow.NotOffloadedTimestamps},
		{"BackendWithoutSACK", spec{}, spec{NoSACK: true}, flow.NotOffloadedSACK},
		{"ClientWithECN", spec{ECN: true}, spec{}, flow.NotOffloadedECN},
	} {
		families(t, tc.name, inKernel, 1, func(t *testing.T, w world) {
			t.Parallel()
			w.Client.TCP(tc.client)
			w.Backends[0].TCP(tc.backend)
			w.Backends[0].Serve(8080, mirror)
			b := start(t, w.Balancer, w.service(nil, "timeouts: {connect: 30s}")) // a SYN may be lost more than once
			lose := func() {
				for _, p := range []testnet.Port{w.ClientLink.B, w.BackendLinks[0].B} {
					p.NoOffloads()
					p.Lose(10)
				}
			}
			if !tc.client.ECN { // which a SYN that is sent again does without
				lose()
			}
			c := w.dial(t)
			if tc.stays != "" {
				b.stays(c.LocalAddr(), tc.stays)
			} else {
				w.carried(b, c)
			}
			if tc.client.ECN {
				lose()
			}
			if err := reflects(c, 5, 2<<20); err != nil {
				t.Error(err)
			}
		})
	}
}

// A backend whose way takes only smaller segments than the client may send: the
// flow stays in userspace and says why.
func TestOffloadMTUMismatch(t *testing.T) {
	for _, narrow := range []string{"Backend", "Client"} {
		families(t, narrow, inKernel, 1, func(t *testing.T, w world) {
			link := w.ClientLink
			if narrow == "Backend" {
				link = w.BackendLinks[0]
			}
			setMTU(t, link.A, 1400)
			setMTU(t, link.B, 1400)
			w.Backends[0].Serve(8080, mirror)
			b := start(t, w.Balancer, w.service(nil))
			c := w.dial(t)
			b.stays(c.LocalAddr(), flow.NotOffloadedMSS)
			if err := reflects(c, 5, 4<<20); err != nil {
				t.Error(err)
			}
			out, err := b.command(w.Balancer, "handoff", b.endedOf(c.LocalAddr()).ID.String())
			if err == nil {
				t.Errorf("a flow that has ended was handed over: %s", out)
			}
		})
	}
}

// What the command says of a flow that cannot be handed over.
func TestOffloadRefusedByCommand(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.offload = whenTold
		w.Backends[0].TCP(testnet.TCPSpec{NoSACK: true})
		w.Backends[0].Serve(8080, mirror)
		b := start(t, w.Balancer, w.service(nil))
		c := &conn{w.dial(t)}
		c.works(t)
		out, err := b.command(w.Balancer, "handoff", b.flowOf(c.LocalAddr()).ID.String())
		if err == nil || !strings.Contains(out, string(flow.NotOffloadedSACK)) {
			t.Errorf("the command says %q, %v", out, err)
		}
		c.works(t)
		b.stays(c.LocalAddr(), flow.NotOffloadedSACK)
		if out, err := b.command(w.Balancer, "handoff", "0123456789abcdef"); err == nil {
			t.Errorf("a flow that is not there: %q", out)
		}
		c.ends(t)
	})
}

// A reader that pauses while the flow is in the kernel: its window closes, the
// backend asks it now and then, and goes on when it opens.
func TestOffloadZeroWindow(t *testing.T) {
	const size = 16 << 20
	bothFamilies(t, 1, func(t *testing.T, w world) {
		t.Parallel()
		w.offload = inKernel
		w.Backends[0].Serve(8080, func(c net.Conn) {
			_, _ = io.CopyN(io.Discard, c, 1)
			_, _ = testnet.SendBulk(c, 3, size)
		})
		b := start(t, w.Balancer, w.service(nil))
		raw, err := w.Client.DialWith(t.Context(), &net.Dialer{Control: testnet.ReceiveBuffer(64 << 10)}, "tcp", w.vip)
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		c := raw.(*net.TCPConn)
		w.carried(b, c)
		if _, err := c.Write([]byte("!")); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the window is shut", b.stands("web"))
		time.Sleep(2 * time.Second) // the backend's questions come at growing distance
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if sum, err := testnet.ReceiveBulk(c); err != nil || sum != testnet.StreamSum(3, size) {
			t.Errorf("after the pause: %v, %v", sum, err)
		}
		c.Close()
		v := b.endedOf(c.LocalAddr())
		wantEnd(t, v, flow.ByBackend, flow.ReasonClosed)
		w.wantPath(t, v)
	})
}

// A reader that is slow when the flow is to leave: what was taken from the backend
// has to be delivered first, so that the flow stays until the reader is there.
func TestOffloadSlowReader(t *testing.T) {
	const size = 32 << 20
	bothFamilies(t, 1, func(t *testing.T, w world) {
		t.Parallel()
		w.offload = whenBusy
		w.Backends[0].Serve(8080, func(c net.Conn) {
			_, _ = testnet.SendBulk(c, 3, size)
			_, _ = io.Copy(io.Discard, c)
		})
		b := start(t, w.Balancer, w.service(nil))
		c := w.dial(t)
		if err := c.SetReadBuffer(64 << 10); err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		read := &slowly{c, 64 << 10, 5 * time.Millisecond}
		sum, err := testnet.CopySum(io.Discard, io.LimitReader(read, size))
		if err != nil || sum != testnet.StreamSum(3, size) {
			t.Errorf("the slow reader got %v, %v", sum, err)
		}
		v := b.flowOf(c.LocalAddr())
		if v.Path != flow.PathBPF && v.NotOffloaded != flow.NotOffloadedBusy {
			t.Errorf("it is recorded as %+v", v)
		}
		t.Logf("in the kernel %v after it began: %s %s", v.HandedOffAt.Sub(v.StartedAt), v.Path, v.NotOffloaded)
		b.inKernelNow(c.LocalAddr()) // now that it is quiet
		(&conn{c}).ends(t)
	})
}

// slowly reads a little at a time.
type slowly struct {
	r     io.Reader
	most  int
	pause time.Duration
}

func (s *slowly) Read(p []byte) (int, error) {
	time.Sleep(s.pause)
	return s.r.Read(p[:min(len(p), s.most)])
}
