package offload_test

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/handoff"
)

// pair is a flow in userspace: a relay of one connection, as simple as can be.
type pair struct {
	w    *world
	rec  *flow.Record
	wake int
	done chan struct{}

	bytes [2]atomic.Uint64
	seen  atomic.Int64

	// The goroutine's.
	fds     [2]int // client, backend
	lease   handoff.Lease
	rest    [2][]byte // to backend, to client
	eof     [2]bool   // of client, of backend
	shut    [2]bool   // and told to the other
	first   flow.By   // who closed first
	held    bool
	stopped bool
	over    bool
	pending func()
	next    flow.Path
	resumed []int // the timeouts of both sockets, each time that it was resumed: ms

	mu    sync.Mutex // guards what follows
	calls []func()
	left  bool // no call is answered any more
}

var (
	_ handoff.Pair = (*pair)(nil)
	_ flow.Path    = (*pair)(nil)
)

// userTimeout is what a handoff has to take off, and Resume puts on again: ms.
const userTimeout = 120_000

// dial reaches the backend as the lease says.
func (p *pair) dial(backend netip.AddrPort) error {
	var why flow.NotOffloaded
	p.lease, why = p.w.o.Prepare(p.w.request(p, backend))
	if p.lease == nil {
		p.rec.NotOffloaded(why)
		p.w.mu.Lock()
		p.w.refused[why]++
		p.w.mu.Unlock()
	}
	var err error
	p.w.star.Balancer.Do(func() {
		for {
			var local netip.AddrPort
			if p.lease != nil {
				local = p.lease.Local()
			}
			p.fds[1], err = connect(local, backend)
			taken := errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL)
			if !taken || p.lease == nil || !p.lease.Next() {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	p.rec.Assign(flow.Assignment{Backend: backend, Picked: flow.ByAlgorithm})
	p.rec.Dialled()
	for _, fd := range p.fds {
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		_ = unix.SetNonblock(fd, true)
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	p.watchPeers()
	if p.lease != nil {
		p.held = p.lease.Offer(p)
	}
	return nil
}

func (p *pair) watchPeers() {
	for _, fd := range p.fds {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, userTimeout)
	}
}

func connect(local, to netip.AddrPort) (fd int, err error) {
	family := unix.AF_INET
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return -1, err
	}
	if local.Port() != 0 {
		if !local.Addr().IsValid() {
			local = netip.AddrPortFrom(netip.IPv6Unspecified(), local.Port())
			if family == unix.AF_INET {
				local = netip.AddrPortFrom(netip.IPv4Unspecified(), local.Port())
			}
		}
		if err := unix.Bind(fd, sockaddr(local)); err != nil {
			return -1, err
		}
	}
	return fd, unix.Connect(fd, sockaddr(to))
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// run moves bytes.
func (p *pair) run() {
	buf := make([]byte, 32<<10)
	for {
		p.serveCalls()
		if !p.over && !p.stopped && !p.held {
			p.pump(buf)
		}
		if p.over {
			break
		}
		p.wait()
	}
	p.leave()
}

// leave answers the last calls: there is nobody for them from now on.
func (p *pair) leave() {
	p.mu.Lock()
	p.left = true
	p.mu.Unlock()
	p.serveCalls()
}

func (p *pair) serveCalls() {
	p.mu.Lock()
	calls := p.calls
	p.calls = nil
	p.mu.Unlock()
	for _, c := range calls {
		c()
	}
}

func (p *pair) wait() {
	fds := []unix.PollFd{{Fd: int32(p.wake), Events: unix.POLLIN}}
	if !p.stopped && !p.held {
		for i := range 2 {
			var ev int16
			if !p.eof[i] && len(p.rest[i]) == 0 {
				ev |= unix.POLLIN
			}
			if len(p.rest[1-i]) > 0 {
				ev |= unix.POLLOUT
			}
			if ev != 0 {
				fds = append(fds, unix.PollFd{Fd: int32(p.fds[i]), Events: ev})
			}
		}
	}
	_, _ = unix.Poll(fds, 1000)
	var b [8]byte
	_, _ = unix.Read(p.wake, b[:])
}

func (p *pair) pump(buf []byte) {
	for i := range 2 {
		if err := p.pumpOne(i, buf); err != nil {
			by := flow.ByClient
			if errors.Is(err, errWrite) != (i == 1) {
				by = flow.ByBackend
			}
			p.end(by, flow.ReasonReset, true)
			return
		}
	}
	if p.shut[0] && p.shut[1] {
		p.end(p.first, flow.ReasonClosed, false)
	}
}

var errWrite = errors.New("write")

func (p *pair) pumpOne(i int, buf []byte) error {
	for {
		if len(p.rest[i]) == 0 && !p.eof[i] {
			n, err := unix.Read(p.fds[i], buf)
			switch {
			case err == unix.EAGAIN:
				return nil
			case err != nil:
				return err
			case n == 0:
				p.eof[i] = true
				if p.first == "" {
					p.first = []flow.By{flow.ByClient, flow.ByBackend}[i]
				}
			default:
				p.rest[i] = append(p.rest[i][:0], buf[:n]...)
			}
		}
		if len(p.rest[i]) > 0 {
			n, err := unix.SendmsgN(p.fds[1-i], p.rest[i], nil, nil, unix.MSG_NOSIGNAL)
			if err == unix.EAGAIN {
				return nil
			}
			if err != nil {
				return errors.Join(errWrite, err)
			}
			p.rest[i] = p.rest[i][n:]
			p.count(i, uint64(n))
		}
		if p.eof[i] && len(p.rest[i]) == 0 {
			if !p.shut[i] {
				p.shut[i] = true
				_ = unix.Shutdown(p.fds[1-i], unix.SHUT_WR)
			}
			return nil
		}
	}
}

func (p *pair) count(i int, n uint64) {
	p.bytes[i].Add(n)
	p.seen.Store(time.Now().UnixNano())
}

// end closes both sockets.
func (p *pair) end(by flow.By, why flow.Reason, reset bool) {
	if p.over {
		return
	}
	if p.stopped {
		p.pending = func() { p.end(by, why, reset) }
		return
	}
	p.over = true
	for _, fd := range p.fds {
		if fd >= 0 {
			if !reset {
				_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
			}
			_ = unix.Close(fd)
		}
	}
	if p.lease != nil {
		p.lease.Release(why)
	}
	p.rec.Finish(by, why)
}

// do calls f on the goroutine, and reports false when that is gone.
func (p *pair) do(f func()) bool {
	answered := make(chan struct{})
	p.mu.Lock()
	if p.left {
		p.mu.Unlock()
		return false
	}
	p.calls = append(p.calls, func() { f(); close(answered) })
	_, _ = unix.Write(p.wake, []byte{7: 1})
	p.mu.Unlock()
	<-answered
	return true
}

// Record implements handoff.Pair.
func (p *pair) Record() *flow.Record { return p.rec }

// Stop implements handoff.Pair.
func (p *pair) Stop() (s handoff.Stopped, ok bool) {
	p.do(func() {
		if p.over || p.stopped {
			return
		}
		p.held, p.stopped = false, true
		p.rec.HandingOff()
		s = handoff.Stopped{
			ClientFD: p.fds[0], BackendFD: p.fds[1], ToBackend: p.rest[0], ToClient: p.rest[1],
			ClientEOF: p.eof[0], BackendEOF: p.eof[1],
		}
		ok = true
	})
	return s, ok
}

// Moved implements handoff.Pair.
func (p *pair) Moved(toBackend, toClient uint64) {
	p.count(0, toBackend)
	p.count(1, toClient)
}

// Resume implements handoff.Pair.
func (p *pair) Resume(toBackend, toClient []byte) {
	p.do(func() {
		p.stopped = false
		p.rec.StaysHere()
		for _, fd := range p.fds {
			timeout, _ := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
			p.resumed = append(p.resumed, timeout)
		}
		p.watchPeers()
		p.rest = [2][]byte{toBackend, toClient}
		if p.pending != nil {
			p.pending()
		}
	})
}

// HandedOff implements handoff.Pair.
func (p *pair) HandedOff(name flow.PathName, path flow.Path) {
	p.do(func() {
		p.over, p.next = true, path
		p.rec.Attach(name, path)
		if p.pending != nil {
			path.End(flow.ByBaton, flow.ReasonShutdown)
		}
	})
}

// Counters implements flow.Path.
func (p *pair) Counters() flow.Counters {
	c := flow.Counters{BytesToBackend: p.bytes[0].Load(), BytesToClient: p.bytes[1].Load()}
	if ns := p.seen.Load(); ns != 0 {
		c.LastSeen = time.Unix(0, ns)
	}
	return c
}

// End implements flow.Path.
func (p *pair) End(by flow.By, why flow.Reason) {
	go p.do(func() { p.end(by, why, true) })
}
