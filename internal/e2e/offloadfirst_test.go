package e2e

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A client that asks the moment it is connected asks while its flow is on its way into
// the kernel. Whatever the moment: it is answered, soon.
func TestOffloadFirstRequest(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) { w.firstRequests(t, scaled(10_000)) })
}

// TestSoakOffloadFirstRequest is as many as find a source port.
func TestSoakOffloadFirstRequest(t *testing.T) {
	soak(t)
	bothFamilies(t, 3, func(t *testing.T, w world) { w.firstRequests(t, 40_000) })
}

// firstRequests has n connections ask once each, a few at a time, and stay open as long
// as the descriptors of a process allow.
func (w world) firstRequests(t *testing.T, n int) {
	t.Helper()
	w.offload = inKernel
	asked := &requests{at: make(map[string]int)}
	for _, h := range w.Backends {
		h.Serve(8080, asked.answer)
	}
	b := start(t, w.Balancer, w.service(nil))
	const together = 4000
	for from := 0; from < n && !t.Failed(); from += together {
		conns := make([]net.Conn, min(together, n-from))
		parallel(len(conns), func(i int) { conns[i] = w.firstRequest(t, b, asked, from+i) })
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
		b.noFlows()
	}
}

func (w world) firstRequest(t *testing.T, b *baton, asked *requests, i int) net.Conn {
	c, err := w.Client.Dial("tcp", w.vip)
	if err != nil {
		t.Errorf("connection %d: %v", i, err)
		return nil
	}
	var question, answer [128]byte
	copy(question[:], fmt.Sprintf("question %d", i))
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	if _, err = c.Write(question[:]); err == nil {
		_, err = io.ReadFull(c, answer[:])
	}
	if err != nil || answer != question {
		t.Errorf("connection %d (%s): %q, %v; the backend has read %d bytes of it; %s; %+v",
			i, c.LocalAddr(), answer[:16], err, asked.read(string(question[:])), standing(c), b.flowOf(c.LocalAddr()))
	}
	return c
}

// requests counts what a backend has read, by what it says.
type requests struct {
	mu sync.Mutex
	at map[string]int
}

func (r *requests) answer(c net.Conn) {
	var buf [128]byte
	for {
		n, err := io.ReadFull(c, buf[:])
		if err != nil {
			return
		}
		r.mu.Lock()
		r.at[string(buf[:])] += n
		r.mu.Unlock()
		if _, err := c.Write(buf[:]); err != nil {
			return
		}
	}
}

func (r *requests) read(question string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at[question]
}

// standing is what a connection's own kernel says of it.
func standing(c net.Conn) string {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err.Error()
	}
	var text string
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			text = err.Error()
			return
		}
		text = fmt.Sprintf("state %d, %d unacked, %d retransmits (%d in all), backoff %d, RTO %v, last ack %d ms ago, last sent %d ms ago",
			info.State, info.Unacked, info.Retransmits, info.Total_retrans, info.Backoff, time.Duration(info.Rto)*time.Microsecond, info.Last_ack_recv, info.Last_data_sent)
	})
	return text
}
