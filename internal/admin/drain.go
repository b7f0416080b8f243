package admin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/baton-lb/baton/lb/store"
)

func (s *Server) postDrain(w http.ResponseWriter, r *http.Request) {
	s.setDrained(w, r, s.o.Store.Drain)
}

func (s *Server) postUndrain(w http.ResponseWriter, r *http.Request) {
	s.setDrained(w, r, s.o.Store.Undrain)
}

func (s *Server) setDrained(w http.ResponseWriter, r *http.Request, do func(store.Target) error) {
	var req TargetRequest
	if err := readJSON(r, &req); err != nil {
		fail(w, err)
		return
	}
	t, err := store.ParseTarget(req.Target)
	if err != nil {
		fail(w, badRequest(err))
		return
	}
	if err := do(t); err != nil {
		fail(w, &httpError{err, statusOf(err)})
		return
	}
	s.awaitProgrammed(r.Context())
	writeJSON(w, http.StatusOK, TargetResult{Target: t.String(), Backends: s.targeted(t)})
}

// programmedWait is how long an answer waits for the kernel to know of what was asked for.
const programmedWait = 2 * time.Second

// awaitProgrammed waits until what was changed is in force on every path.
func (s *Server) awaitProgrammed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, programmedWait)
	defer cancel()
	_ = s.o.Store.Programmed(ctx, s.o.Store.Snapshot().Revision) // it will be
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, store.ErrUnknownTarget):
		return http.StatusNotFound
	case errors.Is(err, store.ErrNotDrained):
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}

// targeted lists the backends that a target names. There may be none: a target
// that is gone for now can still be drained for when it comes back.
func (s *Server) targeted(t store.Target) []Backend {
	found := []Backend{}
	snap := s.o.Store.Snapshot()
	if t.Service == "" {
		for _, svc := range snap.Sorted() {
			if b, ok := svc.Backend(t.Backend); ok {
				found = append(found, backendOf(svc.Name, b))
			}
		}
		return found
	}
	svc, ok := snap.Service(t.Service)
	if !ok {
		return found
	}
	for _, b := range svc.Pool {
		if !t.Backend.IsValid() || t.Backend == b.Address {
			found = append(found, backendOf(svc.Name, b))
		}
	}
	return found
}
