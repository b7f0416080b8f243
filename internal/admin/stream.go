package admin

import (
	"bufio"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"time"
)

// minWatch is how often a watch may look at most.
const minWatch = 100 * time.Millisecond

// stream is an answer that is written piece by piece. Each piece has its time:
// a reader that stops to read is cut off.
type stream struct {
	rc      *http.ResponseController
	w       *bufio.Writer
	timeout time.Duration
}

func (s *Server) newStream(w http.ResponseWriter, contentType string) *stream {
	w.Header().Set("Content-Type", contentType)
	st := &stream{rc: http.NewResponseController(w), timeout: s.o.SlowReader}
	st.w = bufio.NewWriterSize(writeWithin{st, w}, 32<<10)
	return st
}

// writeWithin moves the deadline on at every write.
type writeWithin struct {
	st *stream
	w  io.Writer
}

func (w writeWithin) Write(p []byte) (int, error) {
	w.st.rc.SetWriteDeadline(time.Now().Add(w.st.timeout))
	return w.w.Write(p)
}

// flush hands over to the reader what has been written.
func (st *stream) flush() error { return errors.Join(st.w.Flush(), st.rc.Flush()) }

// document writes one JSON document and a line feed.
type document func(w io.Writer) error

// serveDocument answers with the document once or, when the request has
// watch=INTERVAL, again and again: a line each time that it has changed.
func (s *Server) serveDocument(w http.ResponseWriter, r *http.Request, doc document) {
	interval, err := watchInterval(r)
	if err != nil {
		fail(w, err)
		return
	}
	st := s.newStream(w, "application/json")
	if interval == 0 {
		if doc(st.w) == nil {
			st.w.Flush()
		}
		return
	}
	s.watch(st, r, doc, interval)
}

func (s *Server) watch(st *stream, r *http.Request, doc document, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	seed := maphash.MakeSeed()
	var sent uint64
	for first := true; ; first = false {
		// What has changed is found without keeping the last document: it may
		// be a hundred thousand flows long.
		if first || sum(seed, doc, io.Discard) != sent {
			sent = sum(seed, doc, st.w)
			if st.flush() != nil {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// sum writes the document to w and returns its hash.
func sum(seed maphash.Seed, doc document, w io.Writer) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	if doc(io.MultiWriter(w, &h)) != nil {
		return 0
	}
	return h.Sum64()
}

func watchInterval(r *http.Request) (time.Duration, error) {
	word := r.URL.Query().Get("watch")
	if word == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(word)
	if err != nil || d <= 0 {
		return 0, badRequest(fmt.Errorf("watch=%q: want how often to look, as 1s", word))
	}
	return max(d, minWatch), nil
}
