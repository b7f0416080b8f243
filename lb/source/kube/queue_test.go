package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/baton-lb/baton/lb/store"
)

// What has come is counted each time, and what waits once an object.
func TestQueueCounts(t *testing.T) {
	q := newQueue()
	k := func(name string) types.NamespacedName { return types.NamespacedName{Name: name} }
	want := func(when string, came, waiting Counts) {
		t.Helper()
		if c, w := q.counts(); c != came || w != waiting {
			t.Errorf("%s: %+v have come and %+v wait, want %+v and %+v", when, c, w, came, waiting)
		}
	}
	want("at first", Counts{}, Counts{})
	q.setService(k("a"), &Service{})
	q.setService(k("a"), nil)
	q.setSlice(k("a-1"), &Slice{})
	q.setNode(&Node{})
	want("before it is taken", Counts{2, 1}, Counts{1, 1})
	q.complete()
	if _, ok := q.take(); !ok {
		t.Fatal("nothing to take")
	}
	want("taken", Counts{2, 1}, Counts{})
	q.setSlice(k("a-1"), &Slice{})
	want("and more", Counts{2, 2}, Counts{0, 1})
}

// What the store has is pending until it is in force.
func TestPendingUntilInForce(t *testing.T) {
	s := newAPI(SourceOptions{Store: store.New(store.Options{})}, &client{}, "")
	s.waiting = []waiting{{revision: 2, objects: Counts{3, 4}}, {revision: 3, objects: Counts{0, 1}}}
	for _, tt := range []struct {
		inForce uint64
		want    Counts
	}{{1, Counts{3, 5}}, {2, Counts{0, 1}}, {3, Counts{}}} {
		s.programmed(store.Round{Revision: tt.inForce})
		if got := s.Status().Pending; got != tt.want {
			t.Errorf("with revision %d in force %+v pends, want %+v", tt.inForce, got, tt.want)
		}
	}
}
