package offload_test

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/offload/bpf"
)

// What a flow takes of the kernel's memory. A table as it is by default is there
// whether or not there are flows: of that a flow is charged its part. The rest comes
// with the flow, as the kernel accounts for it, and as its allocator hands it out.
// Kernels before 6.4 do not say what is used, only what may be.
func BenchmarkHandoffMemory(b *testing.B) {
	const n = 10_000
	star := testnet.NewStar(b, 1)
	for b.Loop() {
		others := mapMemory(b, nil)
		var flows *bpf.Flows
		var err error
		star.Balancer.Do(func() {
			flows, err = bpf.OpenFlows(bpf.FlowsOptions{Capacity: bpf.DefaultFlows - 1, Steer: bpf.SteerOptions{Flows: 1}})
		})
		if err != nil {
			b.Fatal(err)
		}
		empty := mapMemory(b, others)
		for i := range n {
			if _, err := flows.Add(numbered(i), bpf.GateWatch); err != nil {
				b.Fatal(err)
			}
		}
		var table, own, slab float64
		for id, m := range mapMemory(b, others) {
			grown := m.locked - empty[id].locked
			table += float64(empty[id].locked) / bpf.DefaultFlows
			own += float64(grown) / n
			slab += float64(grown) / float64(m.element) * float64(slabSize(m.element)) / n
		}
		if err := flows.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(table+own, "kernel-bytes/flow")
		b.ReportMetric(table, "table-bytes/flow")
		b.ReportMetric(table+slab, "slab-bytes/flow")
	}
}

// slabSize is what the allocator hands out when it is asked for so many bytes.
func slabSize(n int64) int64 {
	for _, size := range []int64{8, 16, 32, 64, 96, 128, 192, 256, 512, 1024} {
		if n <= size {
			return size
		}
	}
	return (n + 4095) &^ 4095
}

// numbered is one of many flows of TCP.
func numbered(i int) bpf.FlowSpec {
	return bpf.FlowSpec{
		Proto:    flow.TCP,
		Client:   netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(1024+i)),
		Frontend: netip.MustParseAddrPort("192.0.2.2:80"),
		Local:    netip.AddrPortFrom(netip.MustParseAddr("198.51.100.1"), uint16(1024+i)),
		Backend:  netip.MustParseAddrPort("198.51.100.2:80"),
		Note:     make([]byte, 128),
	}
}

// mapUse is what a map takes of memory.
type mapUse struct {
	locked  int64 // as the kernel accounts for it
	element int64 // of a hash: what one more takes
}

// mapMemory looks at the maps that this process has open, by their IDs.
func mapMemory(b *testing.B, but map[int64]mapUse) map[int64]mapUse {
	b.Helper()
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		b.Fatal(err)
	}
	memory := make(map[int64]mapUse)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // that of the directory itself
		}
		says := make(map[string]int64)
		for line := range strings.Lines(string(content)) {
			key, value, _ := strings.Cut(line, ":")
			says[key], _ = strconv.ParseInt(strings.TrimSpace(value), 0, 64)
		}
		id := says["map_id"]
		if _, other := but[id]; id == 0 || other || ofSteering(b, id) {
			continue
		}
		// struct htab_elem, the key, the value, and the link of the list of free ones
		// (kernel/bpf/hashtab.c, kernel/bpf/memalloc.c).
		element := 48 + (says["key_size"]+7)&^7 + (says["value_size"]+7)&^7 + 8
		memory[id] = mapUse{locked: says["memlock"], element: element}
	}
	return memory
}

// ofSteering reports whether a map is there for flows that are never handed off.
func ofSteering(b *testing.B, id int64) bool {
	b.Helper()
	m, err := ebpf.NewMapFromID(ebpf.MapID(id))
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		b.Fatal(err)
	}
	return strings.HasPrefix(info.Name, "steer_")
}

// tcpTimeouts is how many retransmission timers have run out at a host.
func tcpTimeouts(t testing.TB, h *testnet.Host) (n uint64) {
	t.Helper()
	var err error
	h.Do(func() { n, err = readTCPTimeouts("/proc/thread-self/net/netstat") })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// readTCPTimeouts reads one of the counters of a file of pairs of lines: their names,
// and their values.
func readTCPTimeouts(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var names []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || fields[0] != "TcpExt:" {
			continue
		}
		for i, name := range names {
			if name == "TCPTimeouts" && i < len(fields) {
				return strconv.ParseUint(fields[i], 10, 64)
			}
		}
		names = fields
	}
	return 0, fmt.Errorf("%s has no TCPTimeouts", path)
}

// handoffThreadCPU is what the threads have used whose priority is raised. There is
// one of them for each Offloader.
func handoffThreadCPU() (used time.Duration, found bool) {
	tasks, _ := filepath.Glob("/proc/self/task/*")
	for _, task := range tasks {
		stat, err := os.ReadFile(task + "/stat")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) < 17 || !strings.HasPrefix(fields[16], "-") {
			continue // the nineteenth field is niceness
		}
		sched, err := os.ReadFile(task + "/schedstat")
		if err != nil {
			continue
		}
		first, _, _ := strings.Cut(string(sched), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err == nil {
			used, found = used+time.Duration(ns), true
		}
	}
	return used, found
}
