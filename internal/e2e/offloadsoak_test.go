package e2e

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// Flows that are handed over and end, one after the other, leave nothing behind.
func TestOffloadComeAndGo(t *testing.T) {
	bothFamilies(t, 2, func(t *testing.T, w world) { w.handedInARow(t, scaled(5000)) })
}

// TestSoakOffloadComeAndGo is a hundred thousand of them.
func TestSoakOffloadComeAndGo(t *testing.T) {
	soak(t)
	bothFamilies(t, 12, func(t *testing.T, w world) { // whose ports suffice, though each rests for a while
		b, before, live := w.handedInARow(t, 100_000)
		// Ports rest and flows are looked after for a while when they are over, more of
		// them than before, and Go gives pages back little by little.
		testnet.Eventually(t, 3*time.Minute, "the process is as big as it was", func() error {
			now, heap := b.usage(), b.liveHeap()
			if now.rss > before.rss*11/10 || heap > live*11/10 {
				return fmt.Errorf("it had %v, %d KiB live, and has %v, %d KiB live", before, live>>10, now, heap>>10)
			}
			return nil
		})
	})
}

// handedInARow hands n flows over and sees them end. It returns what the process
// needed before, after a quarter as many, and how many bytes of it were live.
func (w world) handedInARow(t *testing.T, n int) (b *baton, before usage, live int64) {
	t.Helper()
	w.offload = inKernel
	// The backend closes first: so no port of the client waits for its reuse, and the
	// tuple of a flow that is over comes again.
	for _, h := range w.Backends {
		h.Serve(8080, func(c net.Conn) {
			var b [6]byte
			if _, err := io.ReadFull(c, b[:]); err == nil {
				_, _ = c.Write(b[:])
			}
		})
	}
	b = start(t, w.Balancer, w.service(nil))
	visit := func(i int) {
		c, err := w.Client.Dial("tcp", w.vip)
		if err != nil {
			t.Errorf("connection %d: %v", i, err)
			return
		}
		defer c.Close()
		_, _ = fmt.Fprintf(c, "%06d", i%1_000_000)
		if got, err := readEnd(c, 20*time.Second); got != 6 || err != nil {
			t.Errorf("connection %d: %d bytes, %v", i, got, err)
		}
	}
	parallel(n/4, visit) // what grows to its size once has done so
	b.noFlows()
	before, live = b.usage(), b.liveHeap()
	maps, done, began := b.mapMemory(), b.handoffs(), time.Now()
	parallel(n, visit)
	took := time.Since(began)
	b.noFlows()
	b.settles(before)
	after := b.usage()
	handed := b.handoffs() - done
	t.Logf("%d connections in %v (%.0f a second), %v of them in the kernel: before %v, after %v, maps %d and %d KiB",
		n, took, float64(n)/took.Seconds(), handed, before, after, maps>>10, b.mapMemory()>>10)
	if handed < float64(n)*3/4 { // the others were over before, as short as they are
		t.Errorf("%v of %d flows were handed over", handed, n)
	}
	testnet.Eventually(t, 2*time.Minute, "the maps are as they were", func() error {
		if now := b.mapMemory(); now > maps+64<<10 {
			return fmt.Errorf("they had %d KiB and have %d", maps>>10, now>>10)
		}
		return nil
	})
	return b, before, live
}

// liveHeap is how many bytes the process's collector has just left.
func (b *baton) liveHeap() (n int64) {
	b.t.Helper()
	page, err := b.text("/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		b.t.Fatalf("measure the heap: %v", err)
	}
	_, after, _ := strings.Cut(page, "# HeapAlloc = ")
	if _, err := fmt.Sscan(after, &n); err != nil {
		b.t.Fatalf("measure the heap: %v", err)
	}
	return n
}

// handoffs counts flows that the kernel has taken.
func (b *baton) handoffs() float64 {
	b.t.Helper()
	return b.metric("baton_handoffs_total", `path="bpf"`, `result="done"`)
}

// mapMemory is what the kernel says that the BPF maps of the process occupy.
func (b *baton) mapMemory() (bytes int64) {
	b.t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", b.cmd.Process.Pid))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range files {
		text, _ := os.ReadFile(f) // some are closed meanwhile
		if !strings.Contains(string(text), "map_type:") {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "memlock:" {
				n, _ := strconv.ParseInt(f[1], 10, 64)
				bytes += n
			}
		}
	}
	return bytes
}

// TestSoakOffloadHeld holds a hundred thousand flows in the kernel at once.
func TestSoakOffloadHeld(t *testing.T) {
	soak(t)
	const hosts, each = 8, 12_500 // connections, within the descriptors of a process
	bothFamilies(t, hosts, func(t *testing.T, w world) {
		w.offload = inKernel
		var backends []string
		for i, h := range w.Backends {
			w.helper(t, h, "backend", w.backend(i), 0)
			backends = append(backends, fmt.Sprintf("%q", w.backend(i)))
		}
		b := start(t, w.Balancer, w.service(backends, "balance: round-robin"))
		warm := w.dial(t)
		w.carried(b, warm)
		before, maps := b.usage(), b.mapMemory()
		var clients []*helper
		began := time.Now()
		for i := range hosts {
			clients = append(clients, w.helper(t, w.AddClient(fmt.Sprint("crowd", i)), "client", w.vip, each))
		}
		for _, c := range clients {
			c.want(t, "echoed", 5*time.Minute)
		}
		opened := time.Since(began)
		testnet.Eventually(t, time.Minute, "all are in the kernel", func() error {
			if n := b.metric("baton_flows_active", `path="bpf"`); n != hosts*each+1 {
				return fmt.Errorf("%v are", n)
			}
			return nil
		})
		full := b.usage()
		t.Logf("%d flows in %v: before %v, full %v; %d bytes of maps a flow", hosts*each, opened, before, full, (b.mapMemory()-maps)/(hosts*each))
		if grown := (b.mapMemory() - maps) / (hosts * each); grown > 1024 {
			t.Errorf("a flow costs %d bytes of maps", grown)
		}
		if full.descriptors > before.descriptors+64 {
			t.Errorf("flows in the kernel hold descriptors: %d, before %d", full.descriptors, before.descriptors)
		}
		for _, c := range clients {
			c.tell(t, "again")
		}
		for _, c := range clients {
			c.want(t, "echoed", 5*time.Minute)
		}
		for _, c := range clients {
			c.tell(t, "close")
			c.want(t, "closed", 5*time.Minute)
		}
		testnet.Eventually(t, 5*time.Minute, "only one flow is left", func() error {
			if n := b.metric("baton_flows_active"); n != 1 {
				return fmt.Errorf("%v are open", n)
			}
			return nil
		})
		before.descriptors += 64 // pipes, of which a pool has grown to its size
		b.settles(before)
	})
}

// helper is a process with connections of its own.
type helper struct {
	cmd *testnet.Cmd
	in  io.WriteCloser
	out *logBuffer
	at  int // of out, where the next answer is looked for
}

const (
	helperRole  = "BATON_HELPER_ROLE"
	helperAddr  = "BATON_HELPER_ADDR"
	helperCount = "BATON_HELPER_COUNT"
)

func (w world) helper(t *testing.T, h *testnet.Host, role string, addr netip.AddrPort, count int) *helper {
	t.Helper()
	p := &helper{out: new(logBuffer)}
	p.cmd = h.TestProcess(t.Context(), "TestHelper", helperRole+"="+role, helperAddr+"="+addr.String(), helperCount+"="+strconv.Itoa(count))
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.want(t, "began", 10*time.Second)
	return p
}

func (p *helper) tell(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

// want waits for a line.
func (p *helper) want(t *testing.T, line string, within time.Duration) {
	t.Helper()
	testnet.Eventually(t, within, "a helper says "+line, func() error {
		text := p.out.String()[p.at:]
		i := strings.Index(text, line+"\n")
		if strings.Contains(text, "FAIL") {
			t.Fatalf("a helper says %q", text)
		}
		if i < 0 {
			return fmt.Errorf("it says %q", text)
		}
		p.at += i + len(line) + 1
		return nil
	})
}
