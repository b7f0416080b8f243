package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// probeTime bounds a probe that waits for the kernel.
const probeTime = 2 * time.Second

// probeSplice moves bytes from one TCP connection through a pipe into another,
// over loopback.
func probeSplice(*host) Finding {
	if err := trySplice(); err != nil {
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
			return absent("flows are copied through memory: slower, the same otherwise", "%v", err)
		}
		return inconclusive(err)
	}
	return present("bytes of TCP flows are moved inside the kernel")
}

func trySplice() error {
	src, dst, done, err := tcpPair()
	if err != nil {
		return err
	}
	defer done()
	sent := []byte("baton")
	if _, err := src.Write(sent); err != nil {
		return fmt.Errorf("write to a connection: %w", err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	raw, err := dst.SyscallConn()
	if err != nil {
		return err
	}
	// What has arrived goes into the pipe and out again on the same connection.
	var spliceErr error
	err = raw.Read(func(fd uintptr) bool {
		var n int64
		n, spliceErr = unix.Splice(int(fd), nil, pipe[1], nil, len(sent), unix.SPLICE_F_NONBLOCK)
		if errors.Is(spliceErr, unix.EAGAIN) {
			return false
		}
		if spliceErr == nil {
			_, spliceErr = unix.Splice(pipe[0], nil, int(fd), nil, int(n), unix.SPLICE_F_NONBLOCK)
		}
		return true
	})
	if err := errors.Join(err, spliceErr); err != nil {
		return fmt.Errorf("splice: %w", err)
	}
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(src, got); err != nil {
		return fmt.Errorf("read what was spliced: %w", err)
	}
	if !bytes.Equal(got, sent) {
		return fmt.Errorf("splice: %q came back as %q", sent, got)
	}
	return nil
}

// tcpPair is both ends of a connection over loopback.
func tcpPair() (a, b *net.TCPConn, done func(), err error) {
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("listen on loopback: %w", err)
	}
	defer l.Close()
	deadline := time.Now().Add(probeTime)
	l.SetDeadline(deadline)
	c, err := (&net.Dialer{Deadline: deadline}).Dial("tcp4", l.Addr().String())
	if err != nil {
		return nil, nil, nil, fmt.Errorf("connect over loopback: %w", err)
	}
	a = c.(*net.TCPConn)
	if b, err = l.AcceptTCP(); err != nil {
		a.Close()
		return nil, nil, nil, fmt.Errorf("accept on loopback: %w", err)
	}
	a.SetDeadline(deadline)
	b.SetDeadline(deadline)
	return a, b, func() { a.Close(); b.Close() }, nil
}

// withSocket calls do with a new TCP socket.
func withSocket(proto int, do func(fd int) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return do(fd)
}

func probeUserTimeout(*host) Finding {
	err := withSocket(unix.IPPROTO_TCP, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 30_000)
	})
	if err != nil {
		return absent("a peer that vanishes is noticed by keepalive only", "%v", err)
	}
	return present("a peer that vanishes with data on the way to it is noticed in time")
}

func probeMPTCP(*host) Finding {
	err := withSocket(unix.IPPROTO_MPTCP, func(int) error { return nil })
	if err != nil {
		return absent("nothing to do: Baton speaks plain TCP", "%v", err)
	}
	return present("on, and not used: Baton speaks plain TCP, to which clients fall back")
}

// errPortTaken says that something listens there.
var errPortTaken = errors.New("something else listens there")

// tryBind binds a socket and gives it back at once. It never listens, so that
// no client is taken from anybody; with SO_REUSEADDR only a listener is in the
// way, not what is left of old connections.
func tryBind(a netip.AddrPort) error {
	domain, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()})
	if a.Addr().Is4() {
		domain, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if domain == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return err
		}
	}
	err = unix.Bind(fd, sa)
	if errors.Is(err, unix.EADDRINUSE) {
		return errPortTaken
	}
	return err
}
