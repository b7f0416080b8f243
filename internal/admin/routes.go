package admin

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/pprof"
	"time"
)

// maxBody is more than any request needs.
const maxBody = 64 << 10

// profileTime is how long a profile may take.
const profileTime = 10 * time.Minute

// control is everything, for the unix socket.
func (s *Server) control() http.Handler {
	mux := http.NewServeMux()
	s.routeReadOnly(mux)
	mux.HandleFunc("GET /v1/instance", s.getInstance)
	mux.HandleFunc("GET /v1/services", s.getServices)
	mux.HandleFunc("GET /v1/backends", s.getBackends)
	mux.HandleFunc("GET /v1/flows", s.getFlows)
	mux.HandleFunc("GET /v1/trace", s.getTrace)
	mux.HandleFunc("GET /v1/doctor", s.getDoctor)
	mux.HandleFunc("POST /v1/drain", s.postDrain)
	mux.HandleFunc("POST /v1/undrain", s.postUndrain)
	mux.HandleFunc("POST /v1/reset", s.postReset)
	mux.HandleFunc("POST /v1/handoff", s.postHandoff)
	mux.HandleFunc("POST /v1/upgrade", s.postUpgrade)
	mux.HandleFunc("GET /debug/pprof/", slowly(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", slowly(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", slowly(pprof.Trace))
	return s.bounded(mux)
}

// readOnly is what is served on TCP.
func (s *Server) readOnly() http.Handler {
	mux := http.NewServeMux()
	s.routeReadOnly(mux)
	return s.bounded(mux)
}

func (s *Server) routeReadOnly(mux *http.ServeMux) {
	mux.Handle("GET /metrics", s.metrics.handler(s.log))
	mux.HandleFunc("GET /readyz", probe(s.o.Readiness.Ready))
	mux.HandleFunc("GET /livez", probe(s.o.Readiness.Live))
	mux.HandleFunc("GET /healthz", s.getHealthz)
	if s.o.ProxyMode != "" {
		mux.HandleFunc("GET /proxyMode", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			io.WriteString(w, s.o.ProxyMode)
		})
	}
}

// bounded gives every answer a time to be read in, and every request a size.
// Streams move that time on as they write.
func (s *Server) bounded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.o.SlowReader))
		h.ServeHTTP(w, r)
	})
}

// slowly gives a profile the time it needs.
func slowly(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(profileTime))
		h(w, r)
	}
}

// probe answers "ok", or 503 and why not.
func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, err.Error()+"\n")
			return
		}
		io.WriteString(w, "ok\n")
	}
}

// getHealthz answers as /livez does, and says more that one may want to know.
func (s *Server) getHealthz(w http.ResponseWriter, r *http.Request) {
	probe(s.o.Readiness.Live)(w, r)
	if s.o.Node.Status == nil {
		return
	}
	if text := s.o.Node.Status().apiServer(); text != "" {
		io.WriteString(w, "the API server is "+text+": what is known is served\n")
	}
}

// httpError is an error with its HTTP status.
type httpError struct {
	error
	status int
}

func (e *httpError) Unwrap() error { return e.error }

func badRequest(err error) error { return &httpError{err, http.StatusBadRequest} }
func notFound(err error) error   { return &httpError{err, http.StatusNotFound} }
func conflict(err error) error   { return &httpError{err, http.StatusConflict} }

// fail answers with an error, 500 unless it says otherwise.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	if he := (*httpError)(nil); errors.As(err, &he) {
		status = he.status
	}
	writeJSON(w, status, errorAnswer{err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// readJSON reads a request's body into v.
func readJSON(r *http.Request, v any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return badRequest(err)
	}
	return nil
}

// readFilter reads the filters of a request.
func readFilter(r *http.Request) (Filter, error) {
	spec := FilterSpecFrom(r.URL.Query())
	f, err := spec.Parse()
	if err != nil {
		return Filter{}, badRequest(err)
	}
	return f, nil
}
