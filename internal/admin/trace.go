package admin

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// getTrace streams the events of the flows that the filter selects, one a line,
// until the reader goes or the instance stops. It begins when the header has
// been sent. Events that do not fit, because the reader is too slow, are told
// by a Missed line where they are missing.
func (s *Server) getTrace(w http.ResponseWriter, r *http.Request) {
	f, err := readFilter(r)
	if err != nil {
		fail(w, err)
		return
	}
	sub := s.o.Registry.Subscribe(f.Match, s.o.TraceBuffer)
	defer sub.Close()
	st := s.newStream(w, "application/x-ndjson")
	if st.flush() != nil {
		return
	}
	t := tracer{st: st, sub: sub}
	for {
		select {
		case <-r.Context().Done():
			t.finish()
			return
		case e := <-sub.C:
			if t.write(e) != nil {
				return
			}
		}
	}
}

// tracer writes the events of one subscription.
type tracer struct {
	st   *stream
	sub  *flow.Subscription
	told uint64 // of sub.Missed
	run  int    // events since they were last all handed over
}

// maxRun is how many events in a row pass before what is missing is told.
const maxRun = 1024

// write writes an event, and hands over what has been written when no more
// waits: many events are one write, a single one is seen at once.
func (t *tracer) write(e flow.Event) error {
	if err := t.line(e); err != nil {
		return err
	}
	if t.run++; len(t.sub.C) > 0 && t.run < maxRun {
		return nil
	}
	t.run = 0
	if err := t.tellMissed(); err != nil {
		return err
	}
	return t.st.flush()
}

// finish writes what waits when the instance stops.
func (t *tracer) finish() {
	for len(t.sub.C) > 0 {
		if t.line(<-t.sub.C) != nil {
			return
		}
	}
	if t.tellMissed() == nil {
		t.st.flush()
	}
}

func (t *tracer) tellMissed() error {
	now := t.sub.Missed()
	if now == t.told {
		return nil
	}
	n := now - t.told
	t.told = now
	return t.line(Missed{n, time.Now()})
}

func (t *tracer) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = t.st.w.Write(append(b, '\n'))
	return err
}
