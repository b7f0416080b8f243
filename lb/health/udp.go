package health

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
)

// datagrams are buffers for the largest datagram.
var datagrams = sync.Pool{New: func() any { return new([65535]byte) }}

// udp sends a datagram (an empty one when there is nothing to send). An ICMP
// error is a failure at once. If an answer is expected, silence is a failure too,
// and a datagram that is not it is waited past. Otherwise any answer passes, and so
// does silence: many servers answer only what they understand, or nothing at all.
func (p *prober) udp(ctx context.Context, t target) outcome {
	c, release, err := p.connect(ctx, "udp", t.address)
	if err != nil {
		return failed(err)
	}
	defer release()
	buf := datagrams.Get().(*[65535]byte)
	defer datagrams.Put(buf)
	_, err = c.Write([]byte(t.Send))
	resends, other := maxResends, false
	for {
		n := 0
		if err == nil {
			n, err = c.Read(buf[:])
		}
		switch {
		case errors.Is(err, unix.EMSGSIZE) && resends > 0:
			resends-- // the path takes less; now the kernel knows, and fragments
			_, err = c.Write([]byte(t.Send))
		case err != nil:
			return t.withoutAnswer(failed(err), other)
		case bytes.Contains(buf[:n], []byte(t.Expect)):
			return passed
		default:
			other = true
		}
	}
}

// maxResends is how often a path may turn out to be narrower still.
const maxResends = 3

// withoutAnswer judges what came instead of an answer.
func (t target) withoutAnswer(o outcome, other bool) outcome {
	switch {
	case o.result != flow.ProbeTimeout:
		if o.result == flow.ProbeRefused {
			o.detail = "port unreachable"
		}
		return o
	case t.Expect == "":
		return passed
	case other:
		return lacks(t.Expect)
	}
	return o
}
