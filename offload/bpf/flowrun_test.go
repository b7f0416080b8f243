package bpf

import (
	"bytes"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// Verdicts of tc programs (linux/pkt_cls.h).
const (
	toStack    = ^uint32(0) // TC_ACT_UNSPEC
	dropped    = 2          // TC_ACT_SHOT
	redirected = 7          // TC_ACT_REDIRECT
)

// bench runs the programs on single packets, as if they came in at a balancer's device.
type bench struct {
	*road
	index uint32 // of the device
}

func newBench(t testing.TB) *bench {
	t.Helper()
	testnet.RequireRoot(t)
	b := &bench{road: newRoad(t, FlowsOptions{Capacity: 16})}
	l, err := b.Balancer.Netlink().LinkByName(b.ClientLink.A.Dev)
	if err != nil {
		t.Fatal(err)
	}
	b.index = uint32(l.Attrs().Index)
	copy(nearMAC, l.Attrs().HardwareAddr)
	return b
}

// run gives a packet to a program.
func (b *bench) run(t testing.TB, p *ebpf.Program, in []byte, ctx flowSkBuff) (verdict uint32, out []byte) {
	t.Helper()
	ctx.Ifindex = b.index
	o := ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+256), Context: ctx}
	var err error
	b.Balancer.Do(func() { verdict, err = p.Run(&o) })
	if err != nil {
		t.Fatal(err)
	}
	return verdict, o.DataOut
}

func (b *bench) changes(t testing.TB, before map[FlowCount]uint64) map[FlowCount]uint64 {
	t.Helper()
	after := b.counts(t)
	for c, n := range before {
		after[c] -= n
	}
	maps.DeleteFunc(after, func(_ FlowCount, n uint64) bool { return n == 0 })
	return after
}

// expectation is what to expect of a packet.
type expectation struct {
	verdict uint32
	packet  func(t testing.TB, c codec, in []byte) []byte // nil = as it came
	counts  map[FlowCount]uint64
}

func forwarded(_ testing.TB, c codec, in []byte) []byte { return c.forward(in) }

// The ways on.
var (
	onward  = expectation{redirected, forwarded, map[FlowCount]uint64{FlowsForwarded: 1}}
	stacked = expectation{verdict: toStack}
)

func drop(why FlowCount) expectation {
	return expectation{verdict: dropped, counts: map[FlowCount]uint64{why: 1}}
}

// told is for a sender that is answered by an ICMP error.
func told(why FlowCount, kind4, code4, kind6, code6 uint8, mtu uint32) expectation {
	return expectation{redirected, func(t testing.TB, c codec, in []byte) []byte {
		if c.spec.Client.Addr().Is6() {
			return icmpError(t, in, kind6, code6, mtu)
		}
		return icmpError(t, in, kind4, code4, mtu)
	}, map[FlowCount]uint64{why: 1}}
}

var (
	usual    = []byte{1, 1, 8, 10, 0, 0, 1, 0, 0, 0, 2, 0}
	noEcho   = []byte{1, 1, 8, 10, 0, 0, 1, 0, 0, 0, 0, 0}
	late     = []byte{8, 10, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 1, 1}
	odd      = []byte{1, 8, 10, 0, 0, 1, 0, 0, 0, 2, 0, 1}
	sack1    = []byte{1, 1, 5, 10, 0xff, 0xff, 0xff, 0, 0, 0, 0, 9}
	sackOdd  = []byte{1, 5, 10, 0, 0, 0, 1, 0, 0, 1, 0, 1}
	sack3    = slices.Concat(usual, []byte{1, 1, 5, 26, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6})
	sack4    = []byte{1, 1, 5, 34, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 8}
	ofSYN    = []byte{2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 1, 0, 0, 0, 0, 0, 1, 3, 3, 7}
	twice    = slices.Concat(usual, usual)
	unknown  = []byte{1, 254, 6, 1, 2, 3, 4, 1, 1, 1, 8, 10, 0, 0, 1, 0, 0, 0, 2, 0}
	ended    = []byte{0, 1, 8, 10, 0, 0, 1, 0, 0, 0, 2, 0}
	tooLong  = []byte{1, 1, 8, 11, 0, 0, 1, 0, 0, 0, 2, 0}
	tooShort = []byte{8, 1, 8, 10, 0, 0, 1, 0, 0, 0, 2, 0}
	cut      = []byte{1, 1, 1, 8}
	badSACK  = []byte{5, 9, 0, 0, 0, 1, 0, 0, 1, 1, 1, 1}
	noBlocks = []byte{5, 2, 1, 1}
)

// packetCase is a row of the table: what becomes of a packet of a flow.
type packetCase struct {
	name  string
	gate  Gate // GateWatch = GateForward here: see gateCases for the others
	shift int8
	in    segment
	want  expectation
	only4 bool
}

var tcpCases = []packetCase{
	{name: "data", in: segment{seq: 1000, ack: 2000, window: 500, options: usual, payload: 100}, want: onward},
	{name: "data without options", in: segment{seq: 1000, ack: 2000, window: 500, payload: 101}, want: onward},
	{name: "bare acknowledgement", in: segment{seq: 1000, ack: 2000, window: 500, options: usual}, want: onward},
	{name: "padded by Ethernet", in: segment{seq: 1000, ack: 2000, pad: 6}, want: onward},
	{name: "numbers that wrap", in: segment{seq: 0xfffffff0, ack: 0xffffffff, window: 65535, options: usual, payload: 100}, want: onward},
	{name: "no echo of a timestamp", in: segment{seq: 1, ack: 2, options: noEcho}, want: onward},
	{name: "timestamps at 20", in: segment{seq: 1, ack: 2, options: late}, want: onward},
	{name: "timestamps at an odd place", in: segment{seq: 1, ack: 2, options: odd, payload: 3}, want: onward},
	{name: "SACK", in: segment{seq: 1, ack: 2, options: sack1}, want: onward},
	{name: "SACK at an odd place", in: segment{seq: 1, ack: 2, options: sackOdd}, want: onward},
	{name: "SACK of three blocks with timestamps", in: segment{seq: 1, ack: 2, options: sack3}, want: onward},
	{name: "SACK of four blocks", in: segment{seq: 1, ack: 2, options: sack4}, want: onward},
	{name: "timestamps twice", in: segment{seq: 1, ack: 2, options: twice}, want: onward},
	{name: "option nobody knows", in: segment{seq: 1, ack: 2, options: unknown}, want: onward},
	{name: "timestamps behind the end of options", in: segment{seq: 1, ack: 2, options: ended}, want: onward},
	{name: "timestamps of 11 bytes", in: segment{seq: 1, ack: 2, options: tooLong}, want: onward},
	{name: "option of one byte", in: segment{seq: 1, ack: 2, options: tooShort}, want: onward},
	{name: "option that is cut off", in: segment{seq: 1, ack: 2, options: cut}, want: onward},
	{name: "SACK of half a block", in: segment{seq: 1, ack: 2, options: badSACK}, want: onward},
	{name: "SACK without blocks", in: segment{seq: 1, ack: 2, options: noBlocks}, want: onward},
	{name: "SYN of an open flow", in: segment{flags: "SN", seq: 7, window: 1000, options: ofSYN}, shift: 3, want: onward},
	{name: "FIN", in: segment{flags: "F", seq: 1, ack: 2, options: usual}, want: onward},
	{name: "FIN with data", in: segment{flags: "FP", seq: 1, ack: 2, options: usual, payload: 9}, want: onward},
	{name: "reset", in: segment{flags: "R", seq: 1, ack: 2}, want: onward},
	{name: "reset without acknowledgement", in: segment{flags: "RN", seq: 1, ack: 0}, want: onward},
	{name: "ECN and DSCP", in: segment{flags: "EC", seq: 1, ack: 2, tos: 0xbb, payload: 1}, want: onward},
	{name: "urgent data", in: segment{flags: "U", seq: 1, ack: 2, payload: 10}, want: onward},
	{name: "window to the left", shift: 3, in: segment{seq: 1, ack: 2, window: 1000}, want: onward},
	{name: "window to the left, more than fits", shift: 3, in: segment{seq: 1, ack: 2, window: 10000}, want: onward},
	{name: "window to the right", shift: -3, in: segment{seq: 1, ack: 2, window: 1007}, want: onward},
	{name: "window to the right, less than a unit", shift: -14, in: segment{seq: 1, ack: 2, window: 16383}, want: onward},
	{name: "window of nothing", shift: -14, in: segment{seq: 1, ack: 2}, want: onward},
	{name: "as large as the way out takes", in: segment{seq: 1, ack: 2, options: usual, payload: 1448}, want: onward, only4: true},
	{name: "last hop but one", in: segment{seq: 1, ack: 2, hops: 2}, want: onward},
	{name: "last hop", in: segment{seq: 1, ack: 2, hops: 1, options: usual, payload: 100}, want: told(FlowsExpired, 11, 0, 3, 0, 0)},
	{name: "too big", in: segment{seq: 1, ack: 2, options: usual, payload: 1500}, want: told(FlowsTooBig, 3, 4, 2, 0, 1500)},
	{name: "too big, without options", in: segment{seq: 1, ack: 2, payload: 1501}, want: told(FlowsTooBig, 3, 4, 2, 0, 1500)},
	{name: "IP options", in: segment{seq: 1, ack: 2, ipOptions: []byte{148, 4, 0, 0}}, want: drop(FlowsOdd), only4: true},
	{name: "first fragment", in: segment{seq: 1, ack: 2, fragment: "first", payload: 80}, want: drop(FlowsOdd), only4: true},
	{name: "later fragment", in: segment{seq: 1, ack: 2, fragment: "later", payload: 80}, want: stacked, only4: true},
}

var udpCases = []packetCase{
	{name: "datagram", in: segment{payload: 100}, want: onward},
	{name: "odd length", in: segment{payload: 33}, want: onward},
	{name: "empty", in: segment{}, want: onward},
	{name: "without a checksum", in: segment{payload: 30, noSum: true}, want: onward, only4: true},
	{name: "last hop", in: segment{payload: 30, hops: 1}, want: stacked},
	{name: "IP options", in: segment{payload: 30, ipOptions: []byte{148, 4, 0, 0}}, want: stacked, only4: true},
	{name: "first fragment", in: segment{payload: 80, fragment: "first"}, want: stacked, only4: true},
	{name: "later fragment", in: segment{payload: 80, fragment: "later"}, want: stacked, only4: true},
	{name: "too big", in: segment{payload: 1500}, want: told(FlowsTooBig, 3, 4, 2, 0, 1500)},
	{name: "too big, may be fragmented", in: segment{payload: 1500, mayCut: true}, want: stacked, only4: true},
}

// eachWay runs a case for both directions and families, with a flow of its own that is open.
func (b *bench) eachWay(t *testing.T, proto flow.Proto, only4 bool, f func(t *testing.T, w *Flow, d Direction)) {
	eachFamily(t, func(t *testing.T, ipv6 bool) {
		if ipv6 && only4 {
			return
		}
		for d := range directions {
			t.Run(d.String(), func(t *testing.T) {
				w := b.add(t, b.spec(proto, ipv6), offset{})
				f(t, w, d)
			})
		}
	})
}

func (g segment) of(t testing.TB, s FlowSpec, d Direction) []byte {
	t.Helper()
	if d == ToBackend {
		return g.frame(t, s.Proto, s.Client, s.Frontend)
	}
	return g.frame(t, s.Proto, s.Backend, s.Local)
}

func TestPackets(t *testing.T) {
	b := newBench(t)
	for proto, cases := range map[flow.Proto][]packetCase{flow.TCP: tcpCases, flow.UDP: udpCases} {
		for _, tt := range cases {
			t.Run(proto.String()+"/"+tt.name, func(t *testing.T) {
				b.eachWay(t, proto, tt.only4, func(t *testing.T, w *Flow, d Direction) {
					c := codec{spec: w.Spec(), d: d, r: Rewrite{
						Seq: 0x80001234, Ack: 0xfedc4321, TSval: 0xffff0001, TSecr: 0x00010203, Shift: tt.shift,
					}}
					w.SetRewrite(d, c.r)
					b.check(t, b.flows.programs.Ingress, c, tt.in.of(t, c.spec, d), tt.want)
				})
			})
		}
	}
}

// check runs a program on a packet and compares everything.
func (b *bench) check(t testing.TB, p *ebpf.Program, c codec, in []byte, want expectation) {
	t.Helper()
	before := b.counts(t)
	verdict, out := b.run(t, p, in, flowSkBuff{})
	expected := in
	if want.packet != nil {
		expected = want.packet(t, c, in)
	}
	if verdict != want.verdict {
		t.Errorf("verdict %d, want %d", int32(verdict), int32(want.verdict))
	}
	if !bytes.Equal(out[etherLen:], expected[etherLen:]) {
		t.Errorf("packet\n%swant\n%sof\n%s", hex.Dump(out), hex.Dump(expected), hex.Dump(in))
	}
	if counts := b.changes(t, before); !maps.Equal(counts, want.counts) {
		t.Errorf("counted %v, want %v", counts, want.counts)
	}
}

// testComplete asks the kernel to give packets a sum over all that was received, and to look at the end whether it is still
// right (BPF_F_TEST_SKB_CHECKSUM_COMPLETE, Linux 6.17). Before, the flag is not known.
const testComplete = 1 << 2

// TestSumsOfWhatWasReceived: a device may give one with a packet, instead of looking at its checksums.
func TestSumsOfWhatWasReceived(t *testing.T) {
	b := newBench(t)
	for proto, cases := range map[flow.Proto][]packetCase{flow.TCP: tcpCases, flow.UDP: udpCases} {
		for _, tt := range cases {
			if tt.want.counts[FlowsForwarded] == 0 {
				continue
			}
			t.Run(proto.String()+"/"+tt.name, func(t *testing.T) {
				b.eachWay(t, proto, tt.only4, func(t *testing.T, w *Flow, d Direction) {
					w.SetRewrite(d, Rewrite{Seq: 0x80001234, Ack: 0xfedc4321, TSval: 0xffff0001, TSecr: 0x00010203, Shift: tt.shift})
					in := tt.in.of(t, w.Spec(), d)
					o := ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)), Context: flowSkBuff{Ifindex: b.index}, Flags: testComplete}
					var err error
					b.Balancer.Do(func() { _, err = b.flows.programs.Ingress.Run(&o) })
					if errors.Is(err, unix.EINVAL) && !haveTestComplete(t) {
						t.Skip("the kernel does not know BPF_F_TEST_SKB_CHECKSUM_COMPLETE")
					}
					if err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// haveTestComplete runs a program that does nothing.
func haveTestComplete(t *testing.T) bool {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R0, 0), asm.Return(),
	}})
	must(t, err)
	defer p.Close()
	_, err = p.Run(&ebpf.RunOptions{Data: make([]byte, 64), Flags: testComplete})
	return err == nil
}

// BenchmarkPrograms is what packets of nobody's pay, which are most. (What goes on is changed, so a test run cannot repeat it.)
func BenchmarkPrograms(b *testing.B) {
	const repeat = 10_000
	r := newBench(b)
	s := r.spec(flow.TCP, false)
	in := segment{seq: 1, ack: 1, options: usual, payload: 1000}.of(b, s, ToBackend)
	held := r.spec(flow.TCP, false)
	if _, err := r.flows.Add(held, GateFreeze); err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name string
		p    *ebpf.Program
		in   []byte
	}{
		{"ingress", r.flows.programs.Ingress, in},
		{"egress", r.flows.programs.Egress, in},
		{"ingress, held at the gate", r.flows.programs.Ingress, segment{seq: 1, ack: 1, options: usual}.of(b, held, ToBackend)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			for b.Loop() {
				var err error
				r.Balancer.Do(func() {
					_, err = bb.p.Run(&ebpf.RunOptions{Data: bb.in, Context: flowSkBuff{Ifindex: r.index}, Repeat: repeat})
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/repeat, "ns/packet")
		})
	}
}
