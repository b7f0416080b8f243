package load

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// BurstSpec describes datagrams that one socket sends one way, numbered from 0.
type BurstSpec struct {
	Target netip.AddrPort
	Count  int
	Size   int // bytes, at least 8
	Rate   int // datagrams a second, sent in a batch a millisecond; 0 = as fast as it goes
}

// SendBurst sends them from the host and returns how many the kernel took, and
// how long that took.
func SendBurst(host Host, spec BurstSpec) (sent int, took time.Duration, err error) {
	err = fmt.Errorf("the host could not be entered")
	host.Do(func() { sent, took, err = sendBurst(spec) })
	return sent, took, err
}

func sendBurst(spec BurstSpec) (sent int, took time.Duration, err error) {
	fd, err := dialUDP(newSockaddr(spec.Target))
	if err != nil {
		return 0, 0, err
	}
	defer sysClose(fd)
	size := batch
	if spec.Rate > 0 {
		size = max(1, spec.Rate/1000)
	}
	v := newVector(size, spec.Size)
	v.unnamed()
	began := time.Now()
	for sent < spec.Count {
		if spec.Rate > 0 {
			due := time.Duration(float64(sent) / float64(spec.Rate) * float64(time.Second))
			time.Sleep(due - time.Since(began))
		}
		n, err := sendBatch(fd, v, sent, min(size, spec.Count-sent))
		sent += n
		if err != nil {
			return sent, time.Since(began), err
		}
	}
	return sent, time.Since(began), nil
}

// sendBatch sends n datagrams numbered from first.
func sendBatch(fd int, v *vector, first, n int) (sent int, err error) {
	for i := range n {
		binary.LittleEndian.PutUint64(v.payload(i), uint64(first+i))
	}
	for sent < n {
		m, errno := sysSendmmsg(fd, v.messages[sent:n])
		sent += m
		switch errno {
		case 0, unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS:
			time.Sleep(100 * time.Microsecond)
		default:
			return sent, fmt.Errorf("send a datagram: %w", errno)
		}
	}
	return sent, nil
}
