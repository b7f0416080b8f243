package relay

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/relay/datagram"
	"github.com/baton-lb/baton/lb/relay/poll"
)

// sendTries is how often one message is begun again because of errors that may be
// about earlier ones.
const sendTries = 8

// toBackend collects one datagram for the backend.
func (s *udpSession) toBackend(b []byte) {
	if s.closed {
		return
	}
	u := &s.u.w.udp
	if len(s.header)+len(b) > maxUDP(s.backend.Address.Addr()) {
		u.w.drop(flow.DropTooBig, 1)
		return
	}
	u.collectFor(s)
	d := datagram.Datagram{Header: s.header, Data: b, Alone: len(b) > int(s.together[toBackend])}
	if !u.sender.Add(d) {
		u.flush()
		u.collectFor(s)
		u.sender.Add(d)
	}
}

// maxUDP is the largest payload: the length field counts the UDP header, and over
// IPv4 the IP header too.
func maxUDP(a netip.Addr) int {
	if a.Is4() {
		return 65507
	}
	return 65527
}

// flushToBackend sends what was collected. An ICMP error about an earlier
// datagram, which the kernel reports instead of sending, does not cost this one.
func (s *udpSession) flushToBackend() {
	x := s.u.w.udp.sender
	for tries := 1; x.Len() > 0; tries++ {
		sent, err := x.Flush(s.fd)
		s.count(toBackend, sent, len(s.header))
		if err == nil {
			return
		}
		if err == datagram.ErrPartial {
			err = s.readErrors()
		}
		if sent.Datagrams > 0 {
			tries = 1
		}
		if tries == 1 && err != nil {
			s.backendFailed(err)
		}
		if err != nil && !s.sendAgain(x, err, tries, toBackend) {
			tries = 0
		}
	}
}

// sendAgain does what can be done about an error of sending. Else it gives up on
// the message, and reports false.
func (s *udpSession) sendAgain(x *datagram.Sender, err error, tries, dir int) bool {
	_, n, segment := x.Failed()
	switch {
	case tries < sendTries && aboutEarlier(err):
		return true
	case n > 1 && splittable(err):
		s.together[dir] = uint16(segment - 1)
		x.Split()
		return true
	}
	s.u.w.drop(udpDrop(err), n)
	x.Skip()
	return false
}

// aboutEarlier reports whether an error may come from an ICMP message about a
// datagram that was sent before (icmp_err_convert, icmpv6_err_convert).
func aboutEarlier(err error) bool {
	switch err {
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENONET,
		unix.ENOPROTOOPT, unix.EOPNOTSUPP, unix.EPROTO, unix.EACCES, unix.EMSGSIZE:
		return true
	}
	return false
}

// splittable reports whether an error may come from UDP_SEGMENT: segments larger
// than the path takes whole, or a device without checksum offload (udp(7)).
func splittable(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.EIO)
}

func udpDrop(err error) flow.Drop {
	switch {
	case errors.Is(err, unix.EMSGSIZE):
		return flow.DropTooBig
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		return flow.DropQueueFull
	}
	return flow.DropUnreachable
}

// backendFailed notes what the network says of the backend, and moves the session
// away from one that refuses. One that could not be reached has to be so twice
// without an answer in between: a route may come back.
func (s *udpSession) backendFailed(err error) {
	why := dialFailure(err)
	if why.Local() {
		return
	}
	s.look() // it may have answered since
	s.rec.DialFailed(why)
	if why != flow.DialRefused && !s.doubt {
		s.doubt = true
		return
	}
	s.doubt = false
	s.tried = append(s.tried, s.backend)
	if !s.move() {
		s.tried, s.refused = nil, true // the next failure begins anew
	}
	if s.refused && why == flow.DialRefused {
		s.refuse()
	}
}

// refuse tells the client that no backend takes its datagrams, as one that it had
// asked itself would. What that means for clients behind a proxy is not known.
func (s *udpSession) refuse() {
	if s.proxied {
		return
	}
	w := s.u.w
	_ = w.udp.refuser.Refuse(s.client, s.local, w.loop.Now()) // without the right to, silence is all there is
}

// Ready takes the backend's answers, and what the network says of the backend.
func (s *udpSession) Ready(ev poll.Events) {
	var failure error
	if ev&poll.Err != 0 {
		failure = s.readErrors()
	}
	if err := s.receive(); err != nil {
		failure = err
	}
	if failure != nil && !s.closed {
		s.backendFailed(failure)
	}
}

// Run goes on after other sockets have had their turn.
func (s *udpSession) Run() {
	s.queued = false
	if s.closed || s.u.w.udp.paused {
		return
	}
	if err := s.receive(); err != nil && !s.closed {
		s.backendFailed(err)
	}
}

// receive passes answers on, and returns an error that came instead of one.
func (s *udpSession) receive() (failure error) {
	w := s.u.w
	for range udpRounds {
		msgs, err := w.udp.receiver.Receive(s.fd)
		if errors.Is(err, unix.EAGAIN) {
			return failure
		}
		if err != nil {
			failure = err
			continue
		}
		s.answered()
		s.toClient(w.udp.sender, msgs)
		if len(msgs) < datagram.BatchSize {
			return failure
		}
	}
	if !s.queued {
		s.queued = true
		w.loop.Soon(s)
	}
	return failure
}

// answered notes that the backend is well.
func (s *udpSession) answered() {
	s.tried, s.doubt, s.refused = nil, false, false
	if s.backend.Load != nil {
		s.backend.Load.Answered()
	}
}

// readErrors empties the error queue, and returns the last error in it.
func (s *udpSession) readErrors() (last error) {
	for range datagram.BatchSize {
		f, ok := datagram.ReadError(s.fd)
		if !ok {
			break
		}
		if f.Err != 0 {
			last = f.Err
		}
	}
	return last
}

// toClient sends the backend's answers from the address that was asked.
func (s *udpSession) toClient(x *datagram.Sender, msgs []datagram.Message) {
	var source netip.Addr
	if s.u.wildcard() {
		source = s.local.Addr()
	}
	for i := range msgs {
		eachDatagram(&msgs[i], func(b []byte) {
			d := datagram.Datagram{Data: b, To: &s.name, Source: source, Alone: len(b) > int(s.together[toClient])}
			if !x.Add(d) {
				s.flushToClient(x)
				x.Add(d)
			}
		})
	}
	s.flushToClient(x)
}

// flushToClient sends answers. The socket is that of all clients of the frontend,
// and so are the errors that wait on it.
func (s *udpSession) flushToClient(x *datagram.Sender) {
	for tries := 1; x.Len() > 0; tries++ {
		sent, err := x.Flush(s.u.fd)
		s.count(toClient, sent, 0)
		if err == nil {
			return
		}
		if sent.Datagrams > 0 {
			tries = 1
		}
		if err != datagram.ErrPartial && !s.sendAgain(x, err, tries, toClient) {
			tries = 0
		}
	}
}
