package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// resetWait is how long a reset is waited for.
const resetWait = 2 * time.Second

// minPrefix is the shortest start of an id that may name a flow.
const minPrefix = 4

var errNoDoctor = errors.New("this instance has no doctor")

func (s *Server) postReset(w http.ResponseWriter, r *http.Request) {
	var req ResetRequest
	if err := readJSON(r, &req); err != nil {
		fail(w, err)
		return
	}
	rec, err := s.findFlow(req.Flow)
	if err != nil {
		fail(w, err)
		return
	}
	res, err := s.reset(r.Context(), rec)
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, res)
}

// reset ends a flow and waits a moment to see it end.
func (s *Server) reset(ctx context.Context, rec *flow.Record) (ResetResult, error) {
	ended := s.o.Registry.Subscribe(func(v *flow.View) bool { return v.ID == rec.ID() && v.State == flow.Ended }, 1)
	defer ended.Close()
	if !rec.End(flow.ByBaton, flow.ReasonAdminReset) {
		v := rec.View()
		if v.State == flow.Ended {
			return ResetResult{}, conflict(fmt.Errorf("flow %s has just ended: by %s, %s", v.ID, v.EndedBy, v.Reason))
		}
		return ResetResult{}, conflict(fmt.Errorf("flow %s is being set up and cannot be ended yet: try again", v.ID))
	}
	timeout := time.NewTimer(resetWait)
	defer timeout.Stop()
	select {
	case <-ended.C:
	case <-timeout.C:
	case <-ctx.Done():
	}
	v := rec.View()
	return ResetResult{Flow: v, Ended: v.State == flow.Ended}, nil
}

// findFlow finds a live flow by its id or the start of it.
func (s *Server) findFlow(word string) (*flow.Record, error) {
	word = strings.ToLower(word)
	if id, err := flow.ParseID(word); err == nil {
		if rec, ok := s.o.Registry.Get(id); ok {
			return rec, nil
		}
		return nil, notFound(s.whyGone(word))
	}
	if len(word) < minPrefix || len(word) > 16 || strings.Trim(word, "0123456789abcdef") != "" {
		return nil, badRequest(fmt.Errorf("flow id %q: want the 16 hex digits that `baton flows` prints, or at least the first %d", word, minPrefix))
	}
	var found []*flow.Record
	for _, rec := range s.o.Registry.Records() {
		if strings.HasPrefix(rec.ID().String(), word) {
			found = append(found, rec)
		}
	}
	switch len(found) {
	case 0:
		return nil, notFound(s.whyGone(word))
	case 1:
		return found[0], nil
	}
	return nil, conflict(fmt.Errorf("%d flows have an id that starts with %s, as %s and %s: give more of it",
		len(found), word, found[0].ID(), found[1].ID()))
}

// whyGone says how a flow ended that is not live, if that is still known.
func (s *Server) whyGone(prefix string) error {
	for _, v := range s.o.Registry.LastEnded() {
		if strings.HasPrefix(v.ID.String(), prefix) {
			return fmt.Errorf("flow %s has ended already: by %s, %s, at %s",
				v.ID, v.EndedBy, v.Reason, v.EndedAt.Format(time.RFC3339))
		}
	}
	return fmt.Errorf("no flow has the id %s", prefix)
}
