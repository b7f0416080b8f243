package affinity

import (
	"net/netip"
	"time"
)

// ref names an entry of a slab; none is no entry.
type ref uint32

const none ref = 0

// entry is one client. It has no pointers, so that the garbage collector does
// not look at the millions there may be.
type entry struct {
	client, backend [16]byte // IPv6 form
	last            time.Duration
	older, newer    ref // the list by last new flow; newer also links free ones
	port            uint16
	is4             bool // backend
}

func (e *entry) addrPort() netip.AddrPort {
	a := netip.AddrFrom16(e.backend)
	if e.is4 {
		a = a.Unmap()
	}
	return netip.AddrPortFrom(a, e.port)
}

func (e *entry) setAddrPort(a netip.AddrPort) {
	e.backend, e.port, e.is4 = a.Addr().As16(), a.Port(), a.Addr().Is4()
}

const chunkSize = 1 << 8

// slab holds entries in chunks, so that growing moves at most one chunk, and
// links those in use into a list from the oldest to the newest.
type slab struct {
	chunks         [][]entry
	made           int // entries in chunks
	free           ref
	oldest, newest ref
}

func (s *slab) at(r ref) *entry { return &s.chunks[(r-1)/chunkSize][(r-1)%chunkSize] }

// take returns an entry that is in no list.
func (s *slab) take() ref {
	if r := s.free; r != none {
		s.free = s.at(r).newer
		return r
	}
	if s.made%chunkSize == 0 {
		var chunk []entry // the first one grows: most services have few clients
		if s.made > 0 {
			chunk = make([]entry, 0, chunkSize)
		}
		s.chunks = append(s.chunks, chunk)
	}
	last := len(s.chunks) - 1
	s.chunks[last] = append(s.chunks[last], entry{})
	s.made++
	return ref(s.made)
}

// give puts back an entry that is in no list.
func (s *slab) give(r ref) {
	*s.at(r) = entry{newer: s.free}
	s.free = r
}

func (s *slab) pushNewest(r ref) {
	e := s.at(r)
	e.older, e.newer = s.newest, none
	if s.newest == none {
		s.oldest = r
	} else {
		s.at(s.newest).newer = r
	}
	s.newest = r
}

func (s *slab) unlink(r ref) {
	e := s.at(r)
	if e.older == none {
		s.oldest = e.newer
	} else {
		s.at(e.older).newer = e.newer
	}
	if e.newer == none {
		s.newest = e.older
	} else {
		s.at(e.newer).older = e.older
	}
}
