package kube

import (
	"maps"
	"time"
)

// count notes how many objects of a kind there are.
func (s *Source) count(kind string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[kind] = n
}

// setLeaving notes whether the node is about to go.
func (s *Source) setLeaving(leaving bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leaving != s.leaving {
		s.log.Info("whether load balancers should send clients to this node has changed", "leaving", leaving)
	}
	s.leaving = leaving
}

// Status is how a Source is.
type Status struct {
	Objects map[string]int // that are known, by kind
	Faults  map[string]int // that stand now, by kind of object
	Leaving bool           // the node is to be deleted
	Stale   time.Duration  // how long the API server has been out of reach; 0 = it is not
	Queued  time.Time      // when a change came last; zero = never
	InForce time.Time      // when everything that had come was in force last; zero = never
	Came    Counts         // changes of objects that have come
	Pending Counts         // objects whose newest change is not in force
	Waiting time.Duration  // how long the oldest change that is not in force has waited; 0 = none has
}

// Status is how the source is now.
func (s *Source) Status() Status {
	st := Status{Faults: s.told.count(), Stale: s.feeder.stale()}
	queued, oldest := s.queue.times()
	st.Came, st.Pending = s.queue.counts()
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Objects, st.Leaving, st.Queued, st.InForce = maps.Clone(s.objects), s.leaving, queued, s.inForce
	for _, w := range s.waiting {
		st.Pending.add(w.objects)
	}
	if len(s.waiting) > 0 && (oldest.IsZero() || s.waiting[0].since.Before(oldest)) {
		oldest = s.waiting[0].since
	}
	if isClosed(s.synced) && !oldest.IsZero() {
		st.Waiting = time.Since(oldest)
	}
	return st
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
