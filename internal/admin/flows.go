package admin

import (
	"cmp"
	"io"
	"iter"
	"net/http"
	"slices"

	"github.com/baton-lb/baton/internal/flow"
)

func (s *Server) getFlows(w http.ResponseWriter, r *http.Request) {
	f, err := readFilter(r)
	if err != nil {
		fail(w, err)
		return
	}
	ended := r.URL.Query().Get("ended") == "1"
	s.serveDocument(w, r, func(w io.Writer) error { return writeList(w, "flows", s.flows(&f, ended)) })
}

// flows lists the flows that the filter selects, the oldest first: live ones,
// or the last ended ones when they are asked for. A state filter that names
// ended asks for those too, beside live ones if it names others.
func (s *Server) flows(f *Filter, onlyEnded bool) iter.Seq[flow.View] {
	switch {
	case onlyEnded:
		return s.ended(f)
	case f.WantsEnded() && !f.WantsLive():
		return s.ended(f)
	case f.WantsEnded():
		return both(s.ended(f), s.live(f))
	}
	return s.live(f)
}

// live copies one flow at a time: what is held for the whole list is a pointer
// to each.
func (s *Server) live(f *Filter) iter.Seq[flow.View] {
	return func(yield func(flow.View) bool) {
		all := s.o.Registry.Records()
		slices.SortFunc(all, func(a, b *flow.Record) int {
			return cmp.Or(a.StartedAt().Compare(b.StartedAt()), cmp.Compare(a.ID(), b.ID()))
		})
		for _, rec := range all {
			v := rec.View()
			if v.State != flow.Ended && f.Match(&v) && !yield(v) {
				return
			}
		}
	}
}

func (s *Server) ended(f *Filter) iter.Seq[flow.View] {
	return func(yield func(flow.View) bool) {
		all := s.o.Registry.LastEnded()
		slices.SortStableFunc(all, olderFirst)
		for i := range all {
			if f.Match(&all[i]) && !yield(all[i]) {
				return
			}
		}
	}
}

func olderFirst(a, b flow.View) int {
	return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
}

// both merges two sorted lists.
func both(a, b iter.Seq[flow.View]) iter.Seq[flow.View] {
	return func(yield func(flow.View) bool) {
		next, stop := iter.Pull(b)
		defer stop()
		other, more := next()
		for v := range a {
			for more && olderFirst(other, v) < 0 {
				if !yield(other) {
					return
				}
				other, more = next()
			}
			if !yield(v) {
				return
			}
		}
		for ; more; other, more = next() {
			if !yield(other) {
				return
			}
		}
	}
}
