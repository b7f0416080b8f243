package admin

import (
	"fmt"
	"net/http"

	"github.com/baton-lb/baton/internal/flow"
)

// Handoffs hands flows over to the kernel when somebody asks for it.
type Handoffs interface {
	// Handoff tries it now, whether or not the flow is old and big enough. When
	// it is not done, the reason says why, and the error what the kernel said, if
	// that was it.
	Handoff(id flow.ID) (flow.HandoffResult, flow.NotOffloaded, error)
}

func (s *Server) postHandoff(w http.ResponseWriter, r *http.Request) {
	var req HandoffRequest
	if err := readJSON(r, &req); err != nil {
		fail(w, err)
		return
	}
	rec, err := s.findFlow(req.Flow)
	if err != nil {
		fail(w, err)
		return
	}
	v := rec.View()
	if v.State == flow.Dialing {
		fail(w, conflict(fmt.Errorf("flow %s is being set up and cannot be handed off yet: try again", v.ID)))
		return
	}
	res := s.handoff(&v)
	res.Flow = rec.View()
	if res.Flow.State == flow.Ended && res.Result != flow.HandoffDone {
		res.Result = flow.HandoffEnded
	}
	writeJSON(w, http.StatusOK, res)
}

func (s *Server) handoff(v *flow.View) HandoffResult {
	switch {
	case v.State == flow.Offloaded:
		return HandoffResult{Result: flow.HandoffDone, Before: true}
	case s.o.Handoffs == nil:
		return HandoffResult{Result: flow.HandoffRefused, NotOffloaded: flow.NotOffloadedUnavailable}
	}
	result, why, err := s.o.Handoffs.Handoff(v.ID)
	res := HandoffResult{Result: result, NotOffloaded: why}
	if err != nil {
		res.Detail = err.Error()
		if res.Result == "" {
			res.Result = flow.HandoffFailed
		}
	}
	return res
}
