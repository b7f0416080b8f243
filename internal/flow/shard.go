package flow

import (
	"maps"
	"sync"
)

const shardCount = 64

// shard is the flows whose ID leaves the same rest, and the sums of what is no
// longer in them.
type shard struct {
	mu    sync.Mutex // guards what follows
	live  map[ID]*Record
	total map[EndedKey]uint64
	bytes map[BytesKey]uint64
}

// bookLocked moves what the flow has carried on its path until now from the
// flow into the sums. Both locks are held, and base is up to date. What a flow
// carried before stays with the path that did it: sums never go back.
func (s *shard) bookLocked(r *Record) {
	toBackend, toClient := r.unbookedLocked()
	s.bytes[BytesKey{r.service, ToBackend, r.pathName}] += toBackend
	s.bytes[BytesKey{r.service, ToClient, r.pathName}] += toClient
	r.booked = r.base
}

func (s *shard) addTo(st *Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, n := range s.total {
		st.Ended[k] += n
	}
	for k, n := range s.bytes {
		st.Bytes[k] += n
	}
	for _, rec := range s.live {
		rec.mu.Lock()
		path := rec.pathName
		toBackend, toClient := rec.unbookedLocked()
		rec.mu.Unlock()
		st.Active[ActiveKey{rec.service, rec.key.proto, path}]++
		st.Bytes[BytesKey{rec.service, ToBackend, path}] += toBackend
		st.Bytes[BytesKey{rec.service, ToClient, path}] += toClient
	}
}

// addServices notes whose flows are live.
func (s *shard) addServices(live map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rec := range s.live {
		live[rec.service] = true
	}
}

// forget drops the sums of services that are gone.
func (s *shard) forget(gone func(service string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.total, func(k EndedKey, _ uint64) bool { return gone(k.Service) })
	maps.DeleteFunc(s.bytes, func(k BytesKey, _ uint64) bool { return gone(k.Service) })
}
