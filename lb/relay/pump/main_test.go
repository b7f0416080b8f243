package pump

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pairs makes connected stream sockets of one kind. ours is non-blocking, peer
// blocks, at most patience long.
type pairs func(t testing.TB, buffer int) (ours, peer int)

const patience = 10 * time.Second

// unixPair makes a pair of UNIX sockets.
func unixPair(t testing.TB, buffer int) (ours, peer int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	prepare(t, fds[0], fds[1], buffer)
	return fds[0], fds[1]
}

// tcpPairs makes pairs of TCP sockets on the loopback of a host of its own.
func tcpPairs(t testing.TB) pairs {
	t.Helper()
	host := testnet.New(t).Host("pump")
	return func(t testing.TB, buffer int) (ours, peer int) {
		t.Helper()
		host.Do(func() { ours, peer = tcpPair(t, buffer) })
		prepare(t, ours, peer, buffer)
		return ours, peer
	}
}

func tcpPair(t testing.TB, buffer int) (ours, peer int) {
	t.Helper()
	ln := tcpSocket(t, buffer)
	defer unix.Close(ln)
	check(t, unix.Bind(ln, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	check(t, unix.Listen(ln, 1))
	addr, err := unix.Getsockname(ln)
	check(t, err)
	peer = tcpSocket(t, buffer)
	check(t, unix.Connect(peer, addr))
	ours, _, err = unix.Accept4(ln, unix.SOCK_CLOEXEC)
	check(t, err)
	return ours, peer
}

func tcpSocket(t testing.TB, buffer int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	check(t, err)
	setBuffers(t, fd, buffer) // before the window is agreed on
	return fd
}

func prepare(t testing.TB, ours, peer, buffer int) {
	t.Helper()
	check(t, unix.SetNonblock(ours, true))
	limit := unix.NsecToTimeval(int64(patience))
	for _, fd := range []int{ours, peer} {
		setBuffers(t, fd, buffer)
		check(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit))
		check(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit))
	}
}

// setBuffers bounds both buffers of a socket; 0 leaves them to the kernel.
func setBuffers(t testing.TB, fd, buffer int) {
	t.Helper()
	if buffer > 0 {
		check(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, buffer))
		check(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer))
	}
}

// resets makes the close of a socket a reset.
func resets(t testing.TB, fd int) {
	t.Helper()
	check(t, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// descriptors counts those of this process.
func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	return len(entries)
}

func closeAll(fds ...int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
