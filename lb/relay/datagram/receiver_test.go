package datagram

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// What the kernel has put together comes as one message that says how to take it
// apart.
func TestReceiveJoined(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		h := testnet.New(t).Host("a")
		in, at := socket(t, h, SocketParams{Local: loopback(v6), ReceiveSize: 8 << 20})
		out, from := connected(t, h, SocketParams{}, at)
		r, s := NewReceiver(), new(Sender)
		want := [][]byte{fill(800, 1), fill(800, 2), fill(800, 3), fill(11, 4)}
		for _, d := range want {
			s.Add(Datagram{Data: d})
		}
		flush(t, s, out, 4, 2411)
		waitReadable(t, in)
		msgs, err := r.Receive(in)
		if err != nil || len(msgs) != 1 {
			t.Fatalf("%d messages, %v; want one", len(msgs), err)
		}
		m := &msgs[0]
		if m.Segment != 800 || m.Count() != 4 || m.Cut || m.From.AddrPort() != from || m.Local.IsValid() {
			t.Errorf("segments of %d, %d of them, from %s to %s", m.Segment, m.Count(), m.From.AddrPort(), m.Local)
		}
		if err := same(parts(m), want); err != nil {
			t.Error(err)
		}
	})
}

// A batch takes what waits, no more than its size at once, and says when there is
// nothing left.
func TestReceiveBatches(t *testing.T) {
	h := testnet.New(t).Host("a")
	in, at := socket(t, h, SocketParams{Local: loopback(false), ReceiveSize: 8 << 20})
	out, _ := connected(t, h, SocketParams{}, at)
	r, s := NewReceiver(), new(Sender)
	empty(t, r, in)
	total := 0
	for _, n := range []int{1, 2, BatchSize, 3, BatchSize - 1, BatchSize, 7} {
		for i := range n {
			s.Add(Datagram{Data: fill(100+total+i, 1), Alone: true})
		}
		if _, err := s.Flush(out); err != nil {
			t.Fatal(err)
		}
		msgs, err := r.Receive(in)
		if err != nil || len(msgs) != n {
			t.Fatalf("%d messages, %v; want %d", len(msgs), err, n)
		}
		for i, m := range msgs {
			if len(m.Data) != 100+total+i || m.Segment != 0 || m.Count() != 1 {
				t.Errorf("message %d has %d bytes, segments of %d", i, len(m.Data), m.Segment)
			}
		}
		total += n
		empty(t, r, in)
	}
}

// A refusal comes once, in the place of a message; the messages are still there.
func TestReceiveAfterRefusal(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		h := testnet.New(t).Host("a")
		peer, at := socket(t, h, SocketParams{Local: loopback(v6)})
		fd, from := connected(t, h, SocketParams{}, at)
		s, r := new(Sender), NewReceiver()
		to := NewName(from)
		s.Add(Datagram{Data: []byte("answer"), To: &to})
		flush(t, s, peer, 1, 6)
		unix.Close(peer)
		s.Add(Datagram{Data: []byte("question")})
		flush(t, s, fd, 1, 8)
		waitError(t, fd)
		if _, err := r.Receive(fd); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%v, want a refusal", err)
		}
		msgs, err := r.Receive(fd)
		if err != nil || len(msgs) != 1 || string(msgs[0].Data) != "answer" {
			t.Errorf("%d messages, %v; want the answer", len(msgs), err)
		}
		empty(t, r, fd)
	})
}

// One receiver serves sockets of both families; a sender's address is told whole
// after a longer one was in its place.
func TestReceiveNames(t *testing.T) {
	h := testnet.New(t).Host("a")
	r, s := NewReceiver(), new(Sender)
	var last Name
	for i := range 6 {
		v6 := i%2 == 0
		in, at := socket(t, h, SocketParams{Local: loopback(v6)})
		out, from := connected(t, h, SocketParams{}, at)
		for range 2 {
			s.Add(Datagram{Data: []byte("x"), Alone: true})
		}
		flush(t, s, out, 2, 2)
		msgs, err := r.Receive(in)
		if err != nil || len(msgs) != 2 {
			t.Fatalf("%d messages, %v", len(msgs), err)
		}
		want := NewName(from)
		if got := msgs[0].From; got.AddrPort() != from || !got.Equal(&want) || !got.Equal(msgs[1].From) || got.Equal(&last) {
			t.Errorf("from %s, want %s", got.AddrPort(), from)
		}
		last = *msgs[0].From
	}
}

// At a wildcard address each datagram says which address was asked, and the answer
// can come from there.
func TestWildcardAnswersFromTheAddressAsked(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		n := testnet.New(t)
		a, b := n.Host("a"), n.Host("b")
		l := n.Connect(a, b)
		addrs := []netip.Addr{address(b, v6)}
		for _, s := range []string{"10.202.0.77", "10.202.0.78"} {
			if v6 {
				s = map[string]string{"10.202.0.77": "fd00:202::77", "10.202.0.78": "fd00:202::78"}[s]
			}
			addrs = append(addrs, netip.MustParseAddr(s))
			b.AddAddr(l.B.Dev, netip.PrefixFrom(addrs[len(addrs)-1], addrs[0].BitLen()))
		}
		in, at := socket(t, b, SocketParams{Local: wildcard(v6), PacketInfo: true})
		r, s := NewReceiver(), new(Sender)
		for _, asked := range addrs {
			out, _ := connected(t, a, SocketParams{}, netip.AddrPortFrom(asked, at.Port()))
			s.Add(Datagram{Data: []byte("question")})
			flush(t, s, out, 1, 8)
			waitReadable(t, in)
			msgs, err := r.Receive(in)
			if err != nil || len(msgs) != 1 || msgs[0].Local != asked {
				t.Fatalf("%d messages, %v; asked %s", len(msgs), err, asked)
			}
			s.Add(Datagram{Data: []byte("answer"), To: msgs[0].From, Source: msgs[0].Local})
			flush(t, s, in, 1, 6)
			// A connected socket takes it from the address that was asked only.
			if got := collect(t, r, out, 1); string(got[0]) != "answer" {
				t.Errorf("asked %s: got %q", asked, got)
			}
		}
	})
}

func BenchmarkReceiveEmpty(b *testing.B) {
	h := testnet.New(b).Host("a")
	in, _ := socket(b, h, SocketParams{Local: loopback(false)})
	r := NewReceiver()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Receive(in); err != unix.EAGAIN {
			b.Fatal(err)
		}
	}
}
