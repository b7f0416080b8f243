package offload

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A socket in repair mode does nothing by itself: closing it sends neither FIN nor
// reset, and its sequence numbers can be read (Linux 3.5; CAP_NET_ADMIN).

func (s socket) beginRepair() error {
	if err := s.setInt(unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_ON); err != nil {
		return fmt.Errorf("begin TCP_REPAIR: %w", err)
	}
	return nil
}

// endRepair makes the socket live again, without sending anything where the kernel
// can do that (Linux 4.18), else with a window probe, which is harmless. The kernel
// forgets SO_REUSEADDR on that occasion, and without it no listener could be bound
// to the port again while this connection lasts.
func (s socket) endRepair() error {
	err := s.setInt(unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_OFF_NO_WP)
	if err == unix.EINVAL {
		err = s.setInt(unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_OFF)
	}
	if err != nil {
		return fmt.Errorf("end TCP_REPAIR: %w", err)
	}
	return s.reuseAddress()
}

func (s socket) reuseAddress() error {
	if err := s.setInt(unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fmt.Errorf("set SO_REUSEADDR: %w", err)
	}
	return nil
}

// provoke sends a window probe, which the peer answers at once, whatever it was
// waiting for: with an ACK, and a timestamp in it.
func (s socket) provoke() error {
	if err := s.beginRepair(); err != nil {
		return err
	}
	if err := s.setInt(unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_OFF); err != nil {
		return fmt.Errorf("send window probe: %w", err)
	}
	return s.reuseAddress()
}

// sequence is where both byte streams of a socket in repair mode stand.
type sequence struct {
	write   uint32 // the number of the next byte that we would send
	receive uint32 // the number of the next byte that we would take
}

func (s socket) sequence() (q sequence, err error) {
	const receiveQueue, sendQueue = 1, 2 // TCP_RECV_QUEUE, TCP_SEND_QUEUE
	if q.write, err = s.queueSequence(sendQueue); err != nil {
		return q, err
	}
	q.receive, err = s.queueSequence(receiveQueue)
	return q, err
}

func (s socket) queueSequence(queue int) (uint32, error) {
	if err := s.setInt(unix.IPPROTO_TCP, unix.TCP_REPAIR_QUEUE, queue); err != nil {
		return 0, fmt.Errorf("select TCP_REPAIR_QUEUE: %w", err)
	}
	seq, err := s.getInt(unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ)
	if err != nil {
		return 0, fmt.Errorf("read TCP_QUEUE_SEQ: %w", err)
	}
	return uint32(seq), nil
}

// timestamp is the TSval that the socket would send now.
func (s socket) timestamp() (uint32, error) {
	v, err := s.getInt(unix.IPPROTO_TCP, unix.TCP_TIMESTAMP)
	if err != nil {
		return 0, fmt.Errorf("read TCP_TIMESTAMP: %w", err)
	}
	return uint32(v), nil
}

// flushACK sends an acknowledgement that the kernel has put off, and has it put
// off no other.
func (s socket) flushACK() error {
	if err := s.setInt(unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1); err != nil {
		return fmt.Errorf("set TCP_QUICKACK: %w", err)
	}
	return nil
}

// relax has the kernel not watch over a socket's peer any more: none of that may happen
// between the freeze and the end of a handoff. handoff.Pair.Resume has it watch again.
func (s socket) relax() error {
	if err := s.setInt(unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0); err != nil {
		return fmt.Errorf("clear SO_KEEPALIVE: %w", err)
	}
	if err := s.setInt(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 0); err != nil {
		return fmt.Errorf("clear TCP_USER_TIMEOUT: %w", err)
	}
	return nil
}
