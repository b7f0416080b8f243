package datagram

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// A datagram of any size arrives as it is, whatever is sent with it.
func TestSizes(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		testSizes(t, v6, func(size int) int {
			if size < 2000 || size > 65_400 {
				return size + 1
			}
			return size + 97
		})
	})
}

// TestSoakSizes is every size there is.
func TestSoakSizes(t *testing.T) {
	if os.Getenv("BATON_SOAK") == "" {
		t.Skip("long: run by make soak (BATON_SOAK=1)")
	}
	bothFamilies(t, func(t *testing.T, v6 bool) { testSizes(t, v6, func(size int) int { return size + 1 }) })
}

func testSizes(t *testing.T, v6 bool, after func(int) int) {
	h := testnet.New(t).Host("a")
	in, at := socket(t, h, SocketParams{Local: loopback(v6), ReceiveSize: 16 << 20})
	out, _ := connected(t, h, SocketParams{SendSize: 16 << 20}, at)
	r, s := NewReceiver(), new(Sender)
	data := fill(maxPayload(v6), 1)
	size := 0
	for size <= len(data) {
		var want [][]byte
		bytes := 0
		for bytes < 1<<20 && size <= len(data) && s.Add(Datagram{Data: data[:size]}) {
			want = append(want, data[:size])
			bytes += size
			size = after(size)
		}
		flush(t, s, out, len(want), bytes)
		if err := same(collect(t, r, in, len(want)), want); err != nil {
			t.Fatalf("up to %d bytes: %v", size-1, err)
		}
	}
	empty(t, r, in)
	s.Add(Datagram{Data: make([]byte, maxPayload(v6)+1)})
	if _, err := s.Flush(out); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("one byte too many: %v", err)
	}
}

// Whatever is put into one batch arrives byte-exact and once, in order for each
// receiver.
func TestMixtures(t *testing.T) {
	const rounds, receivers = 200, 3
	bothFamilies(t, func(t *testing.T, v6 bool) {
		h := testnet.New(t).Host("a")
		rng := rand.New(rand.NewPCG(1, 2))
		fds, names := make([]int, receivers), make([]Name, receivers)
		for i := range fds {
			var at netip.AddrPort
			fds[i], at = socket(t, h, SocketParams{Local: loopback(v6), ReceiveSize: 16 << 20})
			names[i] = NewName(at)
		}
		out, from := socket(t, h, SocketParams{Local: loopback(v6), SendSize: 16 << 20})
		r, s := NewReceiver(), new(Sender)
		for round := range rounds {
			want := make([][][]byte, receivers)
			sent := Sent{}
			to, size := 0, 0
			for {
				if rng.IntN(4) == 0 {
					to = rng.IntN(receivers)
				}
				if rng.IntN(3) == 0 {
					size = []int{0, 1, 100, 1000, 1472, 4000, rng.IntN(9000)}[rng.IntN(7)]
				}
				d := Datagram{Data: fill(max(0, size-rng.IntN(2)*rng.IntN(2)), rng.Uint32()), To: &names[to], Alone: rng.IntN(20) == 0}
				if rng.IntN(10) == 0 {
					d.Header = fill(28, 3)
				}
				if rng.IntN(150) == 0 || !s.Add(d) {
					break
				}
				want[to] = append(want[to], append(bytes.Clone(d.Header), d.Data...))
				sent.Datagrams++
				sent.Bytes += len(d.Header) + len(d.Data)
			}
			flush(t, s, out, sent.Datagrams, sent.Bytes)
			for i, fd := range fds {
				if err := same(collect(t, r, fd, len(want[i])), want[i]); err != nil {
					t.Fatalf("round %d, receiver %d, from %s: %v", round, i, from, err)
				}
				empty(t, r, fd)
			}
		}
	})
}

// A burst of equal datagrams to one receiver is one message to the kernel.
func TestJoin(t *testing.T) {
	to, other := Name{len: 1}, Name{len: 2}
	source := netip.MustParseAddr("192.0.2.1")
	big := make([]byte, 40_000)
	for _, tc := range []struct {
		name string
		add  []Datagram
		want []int // datagrams of each message
	}{
		{"equal", []Datagram{{Data: big[:10]}, {Data: big[:10]}, {Data: big[:10]}}, []int{3}},
		{"the last is shorter", []Datagram{{Data: big[:10]}, {Data: big[:10]}, {Data: big[:9]}, {Data: big[:9]}}, []int{3, 1}},
		{"the second is longer", []Datagram{{Data: big[:10]}, {Data: big[:11]}}, []int{1, 1}},
		{"empty", []Datagram{{}, {}, {Data: big[:1]}, {}}, []int{1, 1, 1, 1}},
		{"header", []Datagram{{Data: big[:9]}, {Header: big[:3], Data: big[:6]}, {Data: big[:9]}}, []int{1, 1, 1}},
		{"alone", []Datagram{{Data: big[:9]}, {Data: big[:9], Alone: true}, {Data: big[:9]}}, []int{1, 1, 1}},
		{"another receiver", []Datagram{{Data: big[:9], To: &to}, {Data: big[:9], To: &to}, {Data: big[:9], To: &other}}, []int{2, 1}},
		{"another source", []Datagram{{Data: big[:9], To: &to}, {Data: big[:9], To: &to, Source: source}}, []int{1, 1}},
		{"more than a packet holds", []Datagram{{Data: big[:30_000]}, {Data: big[:30_000]}, {Data: big[:30_000]}}, []int{2, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := new(Sender)
			for _, d := range tc.add {
				if !s.Add(d) {
					t.Fatal("no room")
				}
			}
			var got []int
			for i := range s.n {
				got = append(got, s.meta[i].count)
			}
			if len(got) != len(tc.want) {
				t.Fatalf("messages of %v datagrams, want %v", got, tc.want)
			}
			for i := range got {
				if got[i] != tc.want[i] {
					t.Fatalf("messages of %v datagrams, want %v", got, tc.want)
				}
			}
		})
	}
}

// A link that takes only smaller packets than a batch was put together from: the
// datagrams go one by one, in fragments, and none is lost or cut.
func TestSplit(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		n := testnet.New(t)
		a, b := n.Host("a"), n.Host("b")
		n.Link(a, b, testnet.LinkSpec{MTU: 1400})
		in, at := socket(t, b, SocketParams{Local: netip.AddrPortFrom(address(b, v6), 0), ReceiveSize: 8 << 20})
		out, _ := connected(t, a, SocketParams{}, at)
		r, s := NewReceiver(), new(Sender)
		var want [][]byte
		add := func(size int) {
			d := fill(size, uint32(len(want)))
			want = append(want, d)
			if !s.Add(Datagram{Data: d}) {
				t.Fatal("no room")
			}
		}
		for range 3 {
			add(1000) // goes as it is
		}
		for range 5 {
			add(2000)
		}
		add(1999)
		add(7)
		sent := Sent{}
		splits := 0
		for {
			now, err := s.Flush(out)
			sent.Datagrams, sent.Bytes = sent.Datagrams+now.Datagrams, sent.Bytes+now.Bytes
			if err == nil {
				break
			}
			if err == ErrPartial {
				continue
			}
			_, datagrams, segment := s.Failed()
			if !errors.Is(err, unix.EMSGSIZE) && !errors.Is(err, unix.EINVAL) || datagrams != 6 || segment != 2000 {
				t.Fatalf("%d datagrams of %d bytes failed: %v", datagrams, segment, err)
			}
			splits++
			s.Split()
			s.Split() // changes nothing
		}
		if splits != 1 || sent.Datagrams != len(want) || sent.Bytes != 3*1000+5*2000+1999+7 || s.Len() != 0 {
			t.Errorf("%d splits, sent %+v, %d left", splits, sent, s.Len())
		}
		if err := same(collect(t, r, in, len(want)), want); err != nil {
			t.Error(err)
		}
		empty(t, r, in)
	})
}

// address is a host's address in one family.
func address(h *testnet.Host, v6 bool) netip.Addr {
	if v6 {
		return h.IP6
	}
	return h.IP4
}

// A message that was split keeps its source address, and Skip gives up on one
// datagram of it.
func TestSplitKeepsSourceAndSkips(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		n := testnet.New(t)
		a, b := n.Host("a"), n.Host("b")
		l := n.Link(a, b, testnet.LinkSpec{MTU: 1400})
		second := netip.MustParseAddr("10.202.0.77")
		if v6 {
			second = netip.MustParseAddr("fd00:202::77")
		}
		a.AddAddr(l.A.Dev, netip.PrefixFrom(second, second.BitLen()))
		in, at := socket(t, b, SocketParams{Local: netip.AddrPortFrom(address(b, v6), 0)})
		out, _ := socket(t, a, SocketParams{Local: wildcard(v6)})
		to := NewName(at)
		s, r := new(Sender), NewReceiver()
		want := [][]byte{fill(2000, 1), fill(2000, 2), fill(2000, 3)}
		for _, d := range want {
			s.Add(Datagram{Data: d, To: &to, Source: second})
		}
		if _, err := s.Flush(out); err == nil {
			t.Fatal("the link takes them together")
		}
		s.Split()
		s.Skip()
		flush(t, s, out, 2, 4000)
		for len(want) > 1 {
			waitReadable(t, in)
			msgs, err := r.Receive(in)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range msgs {
				if from := m.From.AddrPort().Addr(); from != second {
					t.Errorf("it came from %s, want %s", from, second)
				}
				if want = want[1:]; !bytes.Equal(m.Data, want[0]) {
					t.Error("it is another datagram")
				}
			}
		}
	})
}

// A full send queue is an error, not a wait; the rest can be sent later.
func TestQueueFull(t *testing.T) {
	n := testnet.New(t)
	a, b := n.Host("a"), n.Host("b")
	n.Connect(a, b)
	absent := netip.AddrPortFrom(netip.MustParseAddr("10.202.0.200"), 9) // its packets wait for a neighbour
	out, _ := connected(t, a, SocketParams{SendSize: 4096}, absent)
	s := new(Sender)
	for i := range 30 {
		if !s.Add(Datagram{Data: fill(1000+i, 1)}) {
			t.Fatal("no room")
		}
	}
	sent, err := s.Flush(out)
	if err != ErrPartial || sent.Datagrams+s.Len() != 30 {
		t.Errorf("sent %+v, %d left, %v", sent, s.Len(), err)
	}
	again, err := s.Flush(out)
	sent.Datagrams += again.Datagrams
	if !errors.Is(err, unix.EAGAIN) || sent.Datagrams == 0 || sent.Datagrams+s.Len() != 30 {
		t.Fatalf("sent %+v, %d left, %v", sent, s.Len(), err)
	}
	left := s.Len()
	if _, datagrams, segment := s.Failed(); datagrams != 1 || segment != 1000+30-left {
		t.Errorf("failed at %d datagrams of %d bytes", datagrams, segment)
	}
	s.Skip()
	if s.Len() != left-1 {
		t.Errorf("%d left after a skip, want %d", s.Len(), left-1)
	}
	s.Reset()
	if s.Len() != 0 || !s.Add(Datagram{Data: []byte("x")}) || s.Len() != 1 {
		t.Error("it is not empty after a reset")
	}
}

// A pending ICMP error takes the place of one attempt to send, and costs nothing.
func TestSendAfterRefusal(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		h := testnet.New(t).Host("a")
		in, at := socket(t, h, SocketParams{Local: loopback(v6)})
		out, from := connected(t, h, SocketParams{}, at)
		unix.Close(in)
		s := new(Sender)
		s.Add(Datagram{Data: []byte("lost")})
		flush(t, s, out, 1, 4)
		waitError(t, out)
		again, _ := socket(t, h, SocketParams{Local: at})
		for _, d := range []string{"first", "second"} {
			s.Add(Datagram{Data: []byte(d), Alone: true})
		}
		if _, err := s.Flush(out); !errors.Is(err, unix.ECONNREFUSED) || s.Len() != 2 {
			t.Fatalf("%v, %d left; want a refusal", err, s.Len())
		}
		flush(t, s, out, 2, 11)
		r := NewReceiver()
		if err := same(collect(t, r, again, 2), [][]byte{[]byte("first"), []byte("second")}); err != nil {
			t.Error(err)
		}
		_ = from
	})
}

// Collecting and sending allocate nothing.
func TestSendingAllocatesNothing(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		h := testnet.New(t).Host("a")
		in, at := socket(t, h, SocketParams{Local: wildcard(v6), PacketInfo: true, ReceiveSize: 8 << 20})
		at = netip.AddrPortFrom(loopback(v6).Addr(), at.Port())
		out, _ := socket(t, h, SocketParams{Local: wildcard(v6), SendSize: 8 << 20})
		to, source := NewName(at), loopback(v6).Addr()
		r, s := NewReceiver(), new(Sender)
		data, head := fill(500, 1), fill(28, 2)
		allocs := testing.AllocsPerRun(100, func() {
			for i := range 40 {
				d := Datagram{Data: data[:500-i/10*100], To: &to, Source: source}
				if i%10 == 9 {
					d.Header = head
				}
				s.Add(d)
			}
			if _, err := s.Flush(out); err != nil {
				t.Fatal(err)
			}
			for n := 0; n < 40; {
				msgs, err := r.Receive(in)
				if err != nil {
					t.Fatal(err)
				}
				for i := range msgs {
					n += msgs[i].Count()
					if a := msgs[i].From.AddrPort(); !a.IsValid() || msgs[i].Local != source {
						t.Fatalf("from %s to %s", a, msgs[i].Local)
					}
				}
			}
		})
		if allocs != 0 {
			t.Errorf("%v allocations for 40 datagrams", allocs)
		}
	})
}

func BenchmarkSend(b *testing.B) {
	for _, bc := range []struct {
		name  string
		alone bool
		n     int
	}{{"one", true, 1}, {"64 alone", true, 64}, {"64 together", false, 64}} {
		b.Run(bc.name, func(b *testing.B) {
			h := testnet.New(b).Host("a")
			in, at := socket(b, h, SocketParams{Local: loopback(false), ReceiveSize: 8 << 20})
			out, _ := connected(b, h, SocketParams{SendSize: 8 << 20}, at)
			r, s := NewReceiver(), new(Sender)
			var id [64]byte
			b.ReportAllocs()
			for b.Loop() {
				binary.NativeEndian.PutUint64(id[:], uint64(b.N))
				for range bc.n {
					s.Add(Datagram{Data: id[:], Alone: bc.alone})
				}
				if _, err := s.Flush(out); err != nil {
					b.Fatal(err)
				}
				for n := 0; n < bc.n; {
					msgs, err := r.Receive(in)
					if err != nil {
						b.Fatal(err)
					}
					for i := range msgs {
						n += msgs[i].Count()
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*bc.n), "ns/datagram")
		})
	}
}
