package offload_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
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
	w := bpfWorld(t)
	w.star.Backends[0].Serve(backendPort, testnet.Echo)
	for _, vip := range vips {
		t.Run(vip.String(), func(t *testing.T) {
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

// bulk is a stream that goes on for a while after its flow was handed off.
type bulk struct {
	io.Reader
	handedOff func() bool
	left      int64
}

func newBulk(handedOff func() bool, after int64) *bulk {
	const most = 1 << 33
	return &bulk{testnet.Stream(7, most), handedOff, after}
}

func (b *bulk) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.EOF
	}
	n, err := b.Reader.Read(p)
	if b.handedOff() {
		b.left -= int64(n)
	}
	return n, err
}

// send writes a stream to its end, and returns the sum of it.
func send(to net.Conn, from io.Reader) (testnet.Sum, error) {
	h := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(to, h)}, struct{ io.Reader }{from}, make([]byte, 64<<10))
	s := testnet.Sum{Bytes: n}
	h.Sum(s.Digest[:0])
	return s, err
}

// Bulk in the middle of which the flow is handed off arrives whole.
func TestLiveHandoffOfBulk(t *testing.T) {
	w := bpfWorld(t)
	w.offload(lb.Offload{Mode: lb.OffloadAuto, AfterAge: 10 * time.Millisecond, AfterBytes: 100 << 10})
	for _, vip := range vips {
		t.Run("up "+vip.String(), func(t *testing.T) { w.bulk(t, vip, true, int64(testnet.Scaled(16<<20))) })
		t.Run("down "+vip.String(), func(t *testing.T) { w.bulk(t, vip, false, int64(testnet.Scaled(16<<20))) })
	}
	t.Logf("%v, stood still %v", w.resultsSoFar(), w.stood)
}

// bulk sends one way, until some time after the handoff.
func (w *world) bulk(t *testing.T, vip netip.Addr, up bool, after int64) {
	records := make(chan *flow.Record, 1)
	handedOff := func(rec *flow.Record) func() bool {
		return func() bool { return rec.View().Path == flow.PathBPF }
	}
	sums := make(chan testnet.Sum, 2)
	srv := w.star.Backends[0].Serve(backendPort, func(b net.Conn) {
		if up {
			s, _ := testnet.ReceiveBulk(b)
			sums <- s
			return
		}
		s, _ := send(b, newBulk(handedOff(<-records), after))
		sums <- s
	})
	defer srv.Close()
	c := w.connect(vip)
	rec := w.record(c)
	by := flow.ByBackend
	var s testnet.Sum
	var err error
	if up {
		by = flow.ByClient
		s, err = send(c, newBulk(handedOff(rec), after))
		_ = c.CloseWrite()
	} else {
		records <- rec
		s, err = testnet.ReceiveBulk(c)
		_ = c.Close()
	}
	if other := <-sums; err != nil || s != other {
		t.Errorf("one side has %v, %v, the other %v", s, err, other)
	}
	v := w.ended(rec.ID(), by, flow.ReasonClosed)
	if v.Path != flow.PathBPF || v.BytesToBackend+v.BytesToClient != uint64(s.Bytes) {
		t.Errorf("%d bytes: %+v (%v)", s.Bytes, v, w.resultsSoFar())
	}
}

// A flow that is never quiet by itself is made so.
func TestLiveHandoffOfPingPong(t *testing.T) {
	w := bpfWorld(t)
	w.offload(lb.Offload{Mode: lb.OffloadAuto, AfterAge: 10 * time.Millisecond, AfterBytes: 20})
	w.star.Backends[0].Serve(backendPort, testnet.Echo)
	var all sync.WaitGroup
	for _, vip := range vips {
		for range 4 {
			c := w.connect(vip)
			all.Go(func() {
				b := make([]byte, 1)
				var longest time.Duration
				for begin := time.Now(); time.Since(begin) < 2*time.Second; {
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

// exchange has an echo server return so many bytes.
func exchange(c net.Conn, n int) error {
	sent, got := make([]byte, n), make([]byte, n)
	for i := range sent {
		sent[i] = byte(n + i)
	}
	if _, err := c.Write(sent); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !bytes.Equal(sent, got) {
		return fmt.Errorf("%d bytes came back as others", n)
	}
	return nil
}

// Many connections at once, from both families, are handed off and go on unharmed.
func TestLiveHandoffOfMany(t *testing.T) {
	const each = 200
	w := bpfWorld(t)
	w.star.Backends[0].Serve(backendPort, testnet.Echo)
	var all sync.WaitGroup
	room := make(chan struct{}, 64)
	for i := range each * len(vips) {
		all.Go(func() {
			room <- struct{}{}
			c, err := w.star.Client.Dial("tcp", netip.AddrPortFrom(vips[i%len(vips)], vipPort))
			<-room
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(40 * time.Second))
			for n := range 5 {
				if err := exchange(c, 1+(i*37+n*911)%4000); err != nil {
					t.Error(err)
					return
				}
			}
			_ = c.(*net.TCPConn).CloseWrite()
			if n, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("read %d, %v; want the end", n, err)
			}
		})
	}
	all.Wait()
	testnet.Eventually(t, patience, "all flows have ended", func() error {
		if n := w.registry.Len(); n > 0 {
			return fmt.Errorf("%d have not", n)
		}
		return nil
	})
	got := w.resultsSoFar()
	if got[flow.HandoffDone] < each {
		t.Errorf("%v", got)
	}
	ends := make(map[string]int)
	for _, v := range w.registry.LastEnded() {
		ends[fmt.Sprint(v.Path, " ", v.EndedBy, " ", v.Reason, " ", v.NotOffloaded)]++
	}
	slices.Sort(w.stood)
	t.Logf("%v, %v; stood still %v in the middle, at most %v", got, ends, w.stood[len(w.stood)/2], w.stood[len(w.stood)-1])
}
