package offload

import "github.com/baton-lb/baton/offload/bpf"

// standing is what a frozen flow's two sockets say: everything that the peers had
// sent was read, handed on and acknowledged.
type standing struct {
	client, backend           sequence
	clientClock, backendClock uint32 // TSval that each socket would send now
	clientTSval, backendTSval uint32 // oldest TSval of each peer that may yet be forwarded
	clientInfo, backendInfo   tcpInfo
}

// clockMargin is how many ticks (milliseconds) a TSval that is forwarded is ahead of
// any that the receiver has seen: more than the low bit that TCP_TIMESTAMP takes for
// itself, and the time between reading the clock and the first packet forwarded.
const clockMargin = 64

// rewrites is what has to be added to each direction's numbers. All bytes that each
// side was ever sent it has acknowledged, so one constant is right for every later
// one, in each direction and for both the sequence and the acknowledgement number.
//
// For PAWS (RFC 7323, section 5) a TSval must not be smaller than what the receiver
// has seen from us. It continues our own clock from the last TSval of the true
// sender, whatever the rate of its clock is.
func (s *standing) rewrites() (toBackend, toClient bpf.Rewrite) {
	c, b := s.client, s.backend
	toBackend = bpf.Rewrite{
		Seq: b.write - c.receive, Ack: b.receive - c.write,
		Shift: shift(&s.clientInfo, &s.backendInfo), Scale: uint8(s.clientInfo.sendScale()),
	}
	toClient = bpf.Rewrite{
		Seq: c.write - b.receive, Ack: c.receive - b.write,
		Shift: shift(&s.backendInfo, &s.clientInfo), Scale: uint8(s.backendInfo.sendScale()),
	}
	if s.clientInfo.has(optTimestamps) {
		k1 := s.backendClock + clockMargin - s.clientTSval
		k2 := s.clientClock + clockMargin - s.backendTSval
		toBackend.TSval, toBackend.TSecr = k1, -k2
		toClient.TSval, toClient.TSecr = k2, -k1
	}
	return toBackend, toClient
}
