package offload_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/offload"
	"github.com/baton-lb/baton/offload/bpf"
)

// bpfWorld is a world with the real kernel.
func bpfWorld(t testing.TB, change ...func(*offload.Options)) *world {
	t.Helper()
	return newWorld(t, func(s *testnet.Star) offload.Kernel { return openBPF(t, s, "") }, change...)
}

// openBPF loads the programs into the balancer and puts them on every device.
func openBPF(t testing.TB, s *testnet.Star, dir string) offload.Kernel {
	t.Helper()
	var (
		flows *bpf.Flows
		lot   *bpf.Lot
		err   error
	)
	s.Balancer.Do(func() {
		if flows, err = bpf.OpenFlows(bpf.FlowsOptions{Dir: dir, Capacity: 4096}); err != nil {
			return
		}
		lot, err = bpf.OpenLot(flows)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range append([]testnet.Link{s.ClientLink}, s.BackendLinks...) {
		link, err := s.Balancer.Netlink().LinkByName(port.A.Dev)
		if err == nil {
			err = flows.Attach(link.Attrs().Index)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return offload.BPF(flows, lot)
}

// talk checks that bytes pass, both ways.
func talk(t testing.TB, c net.Conn, what string) {
	t.Helper()
	if err := testnet.Ask(c, what); err != nil {
		t.Fatal(err)
	}
}

// A connection goes on in the kernel as if nothing had happened, whatever it had
// carried before.
func TestLiveHandoff(t *testing.T) {
	for _, vip := range vips {
		t.Run(vip.String(), func(t *testing.T) {
			w := bpfWorld(t)
			w.star.Backends[0].Serve(backendPort, testnet.Echo)
			c := w.connect(vip)
			rec := w.onPath(c, flow.PathBPF)
			for i := range 100 {
				talk(t, c, fmt.Sprintf("line %d", i))
			}
			v := rec.View()
			if v.BytesToBackend != 790 || v.BytesToClient != 790 || v.PacketsToBackend == 0 || v.LastSeenAt.IsZero() {
				t.Errorf("%+v", v)
			}
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if n, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("read %d, %v; want the end", n, err)
			}
			w.ended(rec.ID(), flow.ByClient, flow.ReasonClosed)
		})
	}
}

// Bulk in the middle of which the flow is handed off arrives whole.
func TestLiveHandoffOfBulk(t *testing.T) {
	const size = 64 << 20
	for _, vip := range vips {
		w := bpfWorld(t)
		w.service.Offload.Mode = "auto"
		w.service.Offload.AfterAge, w.service.Offload.AfterBytes = 10*time.Millisecond, 100<<10
		for _, up := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s up=%v", vip, up), func(t *testing.T) {
				got := make(chan testnet.Sum, 1)
				srv := w.star.Backends[0].Serve(backendPort, func(b net.Conn) {
					if up {
						s, _ := testnet.ReceiveBulk(b)
						got <- s
						return
					}
					_, _ = testnet.SendBulk(b, 7, size)
				})
				defer srv.Close()
				c := w.connect(vip)
				rec := w.record(c)
				if up {
					if _, err := testnet.SendBulk(c, 7, size); err != nil {
						t.Fatal(err)
					}
					_ = c.CloseWrite()
				} else {
					s, err := testnet.ReceiveBulk(c)
					if err != nil {
						t.Fatal(err)
					}
					got <- s
					_ = c.Close()
				}
				if s := <-got; s != testnet.StreamSum(7, size) {
					t.Errorf("got %v", s)
				}
				by := flow.ByBackend
				if up {
					by = flow.ByClient
				}
				v := w.ended(rec.ID(), by, flow.ReasonClosed)
				if v.Path != flow.PathBPF || v.BytesToBackend+v.BytesToClient != size {
					t.Errorf("%+v (%v)", v, w.resultsSoFar())
				}
				t.Logf("%v stood still %v", w.resultsSoFar(), w.stood)
			})
		}
	}
}

// A flow that is never quiet by itself is made so.
func TestLiveHandoffOfPingPong(t *testing.T) {
	w := bpfWorld(t)
	w.service.Offload.Mode = "auto"
	w.service.Offload.AfterAge, w.service.Offload.AfterBytes = 10*time.Millisecond, 1000
	w.star.Backends[0].Serve(backendPort, testnet.Echo)
	var all sync.WaitGroup
	for _, vip := range vips {
		for range 4 {
			c := w.connect(vip)
			all.Go(func() {
				b := make([]byte, 1)
				var longest time.Duration
				for begin := time.Now(); time.Since(begin) < 4*time.Second; {
					at := time.Now()
					if _, err := c.Write(b); err != nil {
						t.Error(err)
						return
					}
					if _, err := io.ReadFull(c, b); err != nil {
						t.Error(err)
						return
					}
					longest = max(longest, time.Since(at))
				}
				t.Logf("longest %v", longest)
			})
			defer w.onPath(c, flow.PathBPF)
		}
	}
	all.Wait()
	t.Logf("%v, stood still %v", w.resultsSoFar(), w.stood)
}

// What ends a connection arrives as what it is.
func TestEndsAfterLiveHandoff(t *testing.T) {
	w := bpfWorld(t)
	proceed := make(chan func(net.Conn), 1)
	w.star.Backends[0].Serve(backendPort, func(c net.Conn) { (<-proceed)(c) })
	feel := func(c net.Conn) error {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		_, err := c.Read(make([]byte, 1))
		return err
	}
	for _, vip := range vips {
		t.Run("backend resets "+vip.String(), func(t *testing.T) {
			c := w.connect(vip)
			rec := w.onPath(c, flow.PathBPF)
			proceed <- testnet.Reset
			if err := feel(c); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("felt %v", err)
			}
			w.ended(rec.ID(), flow.ByBackend, flow.ReasonReset)
		})
		t.Run("client resets "+vip.String(), func(t *testing.T) {
			c := w.connect(vip)
			rec := w.onPath(c, flow.PathBPF)
			felt := make(chan error, 1)
			proceed <- func(b net.Conn) { felt <- feel(b) }
			testnet.Reset(c)
			if err := <-felt; !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("felt %v", err)
			}
			w.ended(rec.ID(), flow.ByClient, flow.ReasonReset)
		})
		t.Run("backend closes, client goes on "+vip.String(), func(t *testing.T) {
			c := w.connect(vip)
			rec := w.onPath(c, flow.PathBPF)
			got := make(chan testnet.Sum, 1)
			proceed <- func(b net.Conn) {
				_, _ = io.WriteString(b, "bye")
				_ = b.(*net.TCPConn).CloseWrite()
				s, _ := testnet.ReceiveBulk(b)
				got <- s
			}
			if b, err := io.ReadAll(c); string(b) != "bye" || err != nil {
				t.Errorf("%q, %v", b, err)
			}
			_, _ = testnet.SendBulk(c, 3, 1<<20)
			_ = c.CloseWrite()
			if s := <-got; s != testnet.StreamSum(3, 1<<20) {
				t.Errorf("%v", s)
			}
			w.ended(rec.ID(), flow.ByBackend, flow.ReasonClosed)
		})
		t.Run("we reset "+vip.String(), func(t *testing.T) {
			c := w.connect(vip)
			rec := w.onPath(c, flow.PathBPF)
			felt := make(chan error, 1)
			proceed <- func(b net.Conn) {
				_, _ = io.WriteString(b, "hello")
				felt <- feel(b)
			}
			if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
				t.Error(err)
			}
			rec.End(flow.ByBaton, flow.ReasonAdminReset)
			if err := feel(c); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("the client felt %v", err)
			}
			if err := <-felt; !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("the backend felt %v", err)
			}
			w.ended(rec.ID(), flow.ByBaton, flow.ReasonAdminReset)
		})
	}
}
