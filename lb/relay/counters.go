package relay

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
)

// Counters implements flow.Path.
func (f *tcpFlow) Counters() flow.Counters {
	c := flow.Counters{
		BytesToBackend: f.bytes[toBackend].Load(),
		BytesToClient:  f.bytes[toClient].Load(),
	}
	if seen := f.lastSeen.Load(); seen != 0 {
		c.LastSeen = time.Unix(0, seen)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.samplePacketsLocked()
	c.PacketsToBackend, c.PacketsToClient = f.packets[toBackend], f.packets[toClient]
	return c
}

// samplePacketsLocked asks the kernel how many segments each socket has sent.
func (f *tcpFlow) samplePacketsLocked() {
	if f.gone {
		return
	}
	f.packets[toBackend] = segmentsOut(f.back.fd, f.packets[toBackend])
	f.packets[toClient] = segmentsOut(f.front.fd, f.packets[toClient])
}

func segmentsOut(fd int, before uint64) uint64 {
	if fd < 0 {
		return before
	}
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return before
	}
	return uint64(info.Segs_out)
}
