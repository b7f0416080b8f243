package bpf

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/steer/program"
)

// flood gives the program first packets, as if they came in at the client's link.
type flood struct {
	*steerRoad
	index uint32
	frame []byte
	ipv6  bool
	n     uint32 // clients so far
}

func (r *steerRoad) flood(t testing.TB, k kind) *flood {
	t.Helper()
	l, err := r.Balancer.Netlink().LinkByName(r.ClientLink.A.Dev)
	must(t, err)
	copy(nearMAC, l.Attrs().HardwareAddr)
	from := netip.MustParseAddrPort("10.202.0.99:1000")
	if k.ipv6 {
		from = netip.MustParseAddrPort("[fd00:202::99]:1000")
	}
	return &flood{
		steerRoad: r, index: uint32(l.Attrs().Index), ipv6: k.ipv6,
		frame: segment{flags: "SN", seq: 1, options: ofSYN}.frame(t, k.proto, from, k.vip(frontendPort).Address),
	}
}

// next is a packet of another client: the last bytes of its address and its port differ.
func (f *flood) next() []byte {
	f.n++
	b := append([]byte(nil), f.frame...)
	address, port := etherLen+12, etherLen+20
	if f.ipv6 {
		address, port = etherLen+8+12, etherLen+40
	}
	binary.BigEndian.PutUint16(b[address+2:], uint16(f.n>>14)+1)
	binary.BigEndian.PutUint16(b[port:], uint16(f.n)&0x3fff+1000)
	return b
}

func (f *flood) send(t testing.TB, frame []byte) (verdict uint32) {
	t.Helper()
	verdict, _ = f.run(t, frame)
	return verdict
}

func (f *flood) run(t testing.TB, frame []byte) (verdict uint32, out []byte) {
	t.Helper()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: flowSkBuff{Ifindex: f.index}}
	var err error
	f.Balancer.Do(func() { verdict, err = f.flows.programs.Ingress.Run(&o) })
	must(t, err)
	return verdict, o.DataOut
}

// first is what becomes of a first packet of the client's, from a port of its own.
func (r *steerRoad) first(t testing.TB, k kind) (verdict uint32) {
	t.Helper()
	f := r.flood(t, k)
	r.firsts++
	from := netip.AddrPortFrom(k.of(r.ClientLink.B), 20000+r.firsts)
	return f.send(t, segment{flags: "SN", seq: 1, options: ofSYN}.frame(t, k.proto, from, k.vip(frontendPort).Address))
}

// TestSteerFull: what finds no room is dropped and counted, and does no harm to what is there.
func TestSteerFull(t *testing.T) {
	const room = 64
	r := newSteerRoad(t, 1, FlowsOptions{Capacity: 8, Steer: SteerOptions{Flows: room}})
	r.serve()
	eachSteered(t, onlyTCP, func(t *testing.T, k kind) {
		vip := r.program(t, k, program.ByTable, nil)
		c := r.dial(t, vip, netip.AddrPort{})
		whoAmI(t, c)
		before := r.steer.Counts()
		f := r.flood(t, k)
		for range 2 * room {
			f.send(t, f.next())
		}
		if all := r.all(t); len(all) != room {
			t.Errorf("there are %d flows", len(all))
		}
		if full := r.steer.Counts().Full - before.Full; full != room+1 {
			t.Errorf("%d found no room", full)
		}
		if n := elements(t, r.flows); n != 2*room {
			t.Errorf("there are %d elements", n)
		}
		if _, err := io.WriteString(c, "x"); err != nil {
			t.Error(err)
		}
		if n, err := c.Read(make([]byte, 64)); n == 0 || err != nil {
			t.Errorf("the flow that was there reads %d, %v", n, err)
		}
		// Flows that are handed off have room of their own.
		w, err := r.flows.Add(specFor(1), GateForward)
		must(t, err)
		must(t, w.Delete())
	})
}

// TestSteerFlood: half-open flows count nowhere, and can be told from those that are in use.
func TestSteerFlood(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{Steer: SteerOptions{Flows: 4096}})
	r.serve()
	eachSteered(t, onlyTCP, func(t *testing.T, k kind) {
		vip := r.program(t, k, program.ByTable, nil)
		c := r.dial(t, vip, netip.AddrPort{})
		whoAmI(t, c)
		f := r.flood(t, k)
		for range 1000 {
			if v := f.send(t, f.next()); v != redirected {
				t.Fatalf("verdict %d", int32(v))
			}
		}
		if n := r.steer.Open(1); n != 1 {
			t.Errorf("%d open flows", n)
		}
		var opening []program.Flow
		for _, w := range r.all(t) {
			if w.State == program.Opening {
				opening = append(opening, w)
			}
		}
		if n, err := r.steer.Delete(opening, false); n != 1000 || err != nil {
			t.Errorf("deleted %d, %v", n, err)
		}
		if all := r.all(t); len(all) != 1 || all[0].Client != addrPortOf(c.LocalAddr()) {
			t.Errorf("%+v are left", all)
		}
		if _, err := io.WriteString(c, "x"); err != nil {
			t.Error(err)
		}
		if n, err := c.Read(make([]byte, 64)); n == 0 || err != nil {
			t.Errorf("the open flow reads %d, %v", n, err)
		}
	})
}

// memlock is what the kernel says a map takes.
func memlock(t testing.TB, m *ebpf.Map) (bytes int64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", m.FD()))
	must(t, err)
	for line := range strings.Lines(string(b)) {
		if _, err := fmt.Sscanf(line, "memlock: %d", &bytes); err == nil {
			return bytes
		}
	}
	t.Fatal("the kernel does not say what a map takes")
	return 0
}

// TestSteerMemory: a flow of IPv4 takes less than 300 bytes of the kernel, and nothing else of it is anywhere.
func TestSteerMemory(t *testing.T) {
	const n = 2000
	r := newSteerRoad(t, 1, FlowsOptions{Capacity: 1, Steer: SteerOptions{Flows: n}})
	for _, ipv6 := range []bool{false, true} {
		k := kind{flow.TCP, ipv6, true}
		r.program(t, k, program.ByTable, nil)
		m, most := r.flows.maps.Flows4, int64(300)
		if ipv6 {
			m, most = r.flows.maps.Flows6, 420
		}
		buckets := memlock(t, m) // there before the first flow: as many as there may be elements
		f := r.flood(t, k)
		for range n {
			f.send(t, f.next())
		}
		if all := r.all(t); len(all) != n {
			t.Fatalf("there are %d flows", len(all))
		}
		each := (memlock(t, m)-buckets)/n + 2*16 // and a bucket for each element
		t.Logf("ipv6 %t: %d bytes a flow", ipv6, each)
		if each > most {
			t.Errorf("ipv6 %t: a flow takes %d bytes, the most is %d", ipv6, each, most)
		}
		r.deleteAll(t)
	}
}

// TestSteerAdopted: what is pinned goes on without a process, and the next finds it.
func TestSteerAdopted(t *testing.T) {
	r := newSteerRoad(t, 2, FlowsOptions{Capacity: 8})
	r.serve()
	_, dir := mountForTest(t, r.Balancer)
	must(t, r.flows.Remove())
	o := FlowsOptions{Capacity: 8, Dir: dir}
	start := func() {
		r.flows = newFlows(t, r.Balancer, o)
		must(t, r.flows.AttachAll())
		r.open(t)
	}
	start()
	k := kind{flow.TCP, false, false}
	vip := r.program(t, k, program.ByTicket, func(s *program.Service, b []program.Backend, p *program.Pool, f *program.Frontend) {
		s.Affinity, s.Connections = time.Hour, 10
		b[1].Limit, p.Absent, f.Sources = 3, program.LastKnown, 4
	})
	must(t, r.steer.SetSources(4, []program.Source{{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Verdict: program.SourceDropped}}))
	_, err := r.steer.Refill(thePool, []program.BackendID{2, 2, 2})
	must(t, err)
	c := r.dial(t, vip, netip.AddrPort{})
	whoAmI(t, c)
	before := r.only(t)
	must(t, r.flows.Close())
	talk := func() {
		t.Helper()
		if _, err := io.WriteString(c, "x"); err != nil {
			t.Error(err)
		}
		if n, err := c.Read(make([]byte, 64)); n == 0 || err != nil {
			t.Errorf("the flow reads %d, %v", n, err)
		}
	}
	talk()
	other := r.dial(t, vip, netip.AddrPort{}) // nobody is there to choose
	whoAmI(t, other)
	start()
	talk()
	services, backends, pools, frontends, err := r.steer.Adopted()
	must(t, err)
	if len(services) != 1 || services[0].Name != "web" || services[0].ID != theService || services[0].Times != steerTimes || services[0].Affinity != time.Hour || services[0].Connections != 10 {
		t.Errorf("services %+v", services)
	}
	if len(backends) != 2 || !backends[0].Takes || !backends[0].Masked.IsValid() || backends[0].Limit+backends[1].Limit != 3 {
		t.Errorf("backends %+v", backends)
	}
	if len(pools) != 1 || pools[0].Answer != program.ByTicket || len(pools[0].Table) != 100 || len(pools[0].Members) != 2 || pools[0].Table[1] != 2 {
		t.Errorf("pools %+v", pools)
	}
	if len(frontends) != 1 || frontends[0].FrontendKey != vip || frontends[0].Sources != 4 || frontends[0].Outside != thePool {
		t.Errorf("frontends %+v", frontends)
	}
	if used, waiting := r.steer.Tickets(thePool); used != 1 || waiting != 2 { // the other flow had affinity
		t.Errorf("%d tickets used, %d wait", used, waiting)
	}
	if got, ok := r.steer.Lookup(before.Ref); !ok || got.Backend != before.Backend || r.steer.Open(before.Backend) != 2 {
		t.Errorf("looked up %+v, %t, %d open", got, ok, r.steer.Open(before.Backend))
	}
	must(t, r.steer.SetSources(4, nil))
	n := 0
	must(t, each(r.flows.maps.SteerSources, func(flowSource, flowClient) error { n++; return nil }))
	if n != 0 {
		t.Errorf("%d sources are left", n)
	}
	r.deleteAll(t)
	must(t, r.flows.Remove())
	if left, err := pinnedNames(dir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// BenchmarkSteerWalk is what it costs to look at a flow.
func BenchmarkSteerWalk(b *testing.B) {
	const n = 50000
	r := newSteerRoad(b, 1, FlowsOptions{})
	k := kind{flow.TCP, false, true}
	r.program(b, k, program.ByTable, nil)
	f := r.flood(b, k)
	for range n {
		f.send(b, f.next())
	}
	for b.Loop() {
		r.all(b)
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/n, "ns/flow")
}

// BenchmarkSteer is what a packet costs in the program, by the kernel's own measure.
func BenchmarkSteer(b *testing.B) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	must(b, err)
	defer stats.Close()
	for _, k := range []kind{{flow.TCP, false, true}, {flow.TCP, false, false}, {flow.TCP, true, true}} {
		r := newSteerRoad(b, 1, FlowsOptions{})
		r.program(b, k, program.ByTable, nil)
		f := r.flood(b, k)
		measure := func(b *testing.B, frame func() []byte) {
			before, err := r.flows.programs.Ingress.Stats()
			must(b, err)
			for b.Loop() {
				if v := f.send(b, frame()); v != redirected {
					b.Fatalf("verdict %d", int32(v))
				}
			}
			after, err := r.flows.programs.Ingress.Stats()
			must(b, err)
			b.ReportMetric(float64(after.Runtime-before.Runtime)/float64(after.RunCount-before.RunCount), "ns/run")
		}
		b.Run(k.String()+"/begin", func(b *testing.B) {
			n := 0
			measure(b, func() []byte {
				if n++; n%2000 == 0 {
					b.StopTimer()
					r.deleteAll(b)
					b.StartTimer()
				}
				return f.next()
			})
		})
		b.Run(k.String()+"/carry", func(b *testing.B) {
			frame := f.next()
			f.send(b, frame)
			measure(b, func() []byte { return frame })
		})
	}
}
