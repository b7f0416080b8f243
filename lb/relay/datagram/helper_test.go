package datagram

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// bothFamilies runs a test over IPv4 and over IPv6.
func bothFamilies(t *testing.T, test func(t *testing.T, v6 bool)) {
	t.Run("IPv4", func(t *testing.T) { test(t, false) })
	t.Run("IPv6", func(t *testing.T) { test(t, true) })
}

// loopback is an address of a host's loopback device, any port.
func loopback(v6 bool) netip.AddrPort {
	if v6 {
		return netip.MustParseAddrPort("[::1]:0")
	}
	return netip.MustParseAddrPort("127.0.0.1:0")
}

func wildcard(v6 bool) netip.AddrPort {
	if v6 {
		return netip.MustParseAddrPort("[::]:0")
	}
	return netip.MustParseAddrPort("0.0.0.0:0")
}

// maxPayload is the largest datagram.
func maxPayload(v6 bool) int {
	if v6 {
		return 65527
	}
	return 65507
}

// socket makes a socket inside a host, closed with the test, and says where it is.
func socket(t testing.TB, h *testnet.Host, p SocketParams) (fd int, at netip.AddrPort) {
	t.Helper()
	dropsBefore = backlogDrops(t)
	var err error
	h.Do(func() { fd, err = NewSocket(p, p.Local.Addr()) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if at, err = LocalAddr(fd); err != nil {
		t.Fatal(err)
	}
	return fd, at
}

// connected is a socket with a peer.
func connected(t testing.TB, h *testnet.Host, p SocketParams, to netip.AddrPort) (fd int, at netip.AddrPort) {
	t.Helper()
	var err error
	h.Do(func() {
		if fd, err = NewSocket(p, to.Addr()); err == nil {
			err = Connect(fd, to)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if at, err = LocalAddr(fd); err != nil {
		t.Fatal(err)
	}
	return fd, at
}

// waitReadable waits until something can be read, or an error.
func waitReadable(t testing.TB, fd int) {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for deadline := time.Now().Add(10 * time.Second); ; {
		n, err := unix.Poll(p, 1000)
		if err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
		if time.Now().After(deadline) {
			lost(t)
		}
	}
}

// waitError waits until an ICMP error is pending.
func waitError(t testing.TB, fd int) {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd)}}
	for deadline := time.Now().Add(10 * time.Second); ; {
		if n, err := unix.Poll(p, 100); err == nil && n > 0 && p[0].Revents&unix.POLLERR != 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no error has come in ten seconds")
		}
	}
}

// parts takes a message apart, as its receiver has to.
func parts(m *Message) (all [][]byte) {
	if m.Segment == 0 {
		return [][]byte{bytes.Clone(m.Data)}
	}
	for b := m.Data; len(b) > 0; {
		n := min(m.Segment, len(b))
		all = append(all, bytes.Clone(b[:n]))
		b = b[n:]
	}
	return all
}

// collect receives until n datagrams have come.
func collect(t testing.TB, r *Receiver, fd, n int) (all [][]byte) {
	t.Helper()
	for len(all) < n {
		waitReadable(t, fd)
		msgs, err := r.Receive(fd)
		if err != nil {
			t.Fatalf("receive after %d of %d: %v", len(all), n, err)
		}
		for i := range msgs {
			if msgs[i].Cut {
				t.Error("a datagram was cut")
			}
			p := parts(&msgs[i])
			if len(p) != msgs[i].Count() {
				t.Errorf("a message of %d datagrams counts %d", len(p), msgs[i].Count())
			}
			all = append(all, p...)
		}
	}
	return all
}

// empty checks that nothing more waits.
func empty(t testing.TB, r *Receiver, fd int) {
	t.Helper()
	if msgs, err := r.Receive(fd); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("%d messages more, %v", len(msgs), err)
	}
}

// fill is a datagram of n bytes that tells itself from others.
func fill(n int, seed uint32) []byte {
	b := make([]byte, n)
	for i := range b {
		seed = seed*1664525 + 1013904223
		b[i] = byte(seed >> 24)
	}
	return b
}

// same compares two lists of datagrams, in order.
func same(got, want [][]byte) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d datagrams, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			return fmt.Errorf("datagram %d has %d bytes, want other %d", i, len(got[i]), len(want[i]))
		}
	}
	return nil
}

// flush sends what is collected, whole.
func flush(t testing.TB, s *Sender, fd int, datagrams, bytes int) {
	t.Helper()
	sent, err := s.Flush(fd)
	if want := (Sent{datagrams, bytes}); err != nil || sent != want {
		t.Fatalf("sent %+v, %v; want %+v", sent, err, want)
	}
}
