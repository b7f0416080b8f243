package relay

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/proxyproto"
)

// headerTimeout is how long a client of acceptProxy may take to send its header.
const headerTimeout = 5 * time.Second

// awaitHeader waits for the PROXY header before anything is decided.
func (f *tcpFlow) awaitHeader() {
	f.phase = phaseHeader
	f.w.loop.Arm(&f.timer, headerTimeout)
	f.readHeader()
}

// readHeader looks at what has come so far without taking it, so that not one
// byte after the header is taken with it.
func (f *tcpFlow) readHeader() {
	buf := f.w.headerBuffer()
	n, _, err := unix.Recvfrom(f.front.fd, buf, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return
	}
	if err != nil {
		f.open()
		f.abort(flow.ByClient, endReason(err))
		return
	}
	if n == 0 {
		f.badHeader()
		return
	}
	h, size, err := proxyproto.Parse(buf[:n])
	if errors.Is(err, proxyproto.ErrIncomplete) && !f.toBackend.Ended {
		return
	}
	if err != nil {
		f.badHeader()
		return
	}
	if _, err := unix.Read(f.front.fd, buf[:size]); err != nil {
		f.badHeader()
		return
	}
	f.believe(h)
	f.begin()
}

// believe takes the client's address, and the one it asked for, from a header.
func (f *tcpFlow) believe(h proxyproto.Header) {
	if h.Local || !h.Source.IsValid() {
		return // a probe of the proxy itself: the connection speaks for itself
	}
	f.client = h.Source
	f.asked = h.Destination
}

// badHeader ends a connection whose PROXY header is wrong, late or missing. It
// is a record too, so that somebody who looks for this client finds out why.
func (f *tcpFlow) badHeader() {
	f.open()
	f.refuse(flow.ByBaton, flow.ReasonProxyHeader, flow.DropProxyHeader)
}

// sendHeader tells the backend who the client is. The socket is new and empty,
// so that it takes a header whole or is broken.
func (f *tcpFlow) sendHeader() error {
	var version proxyproto.Version
	switch clientAddressOf(f.fe) {
	case lb.ProxyV1:
		version = proxyproto.V1
	case lb.ProxyV2:
		version = proxyproto.V2
	default:
		return nil
	}
	b := proxyproto.Append(f.w.headerBuffer()[:0], version, proxyproto.Stream, f.client, f.asked)
	n, err := unix.Write(f.back.fd, b)
	if err == nil && n < len(b) {
		err = unix.ENOBUFS
	}
	return err
}
