package admin

import (
	"encoding/json"
	"io"
	"iter"
	"net/http"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/sched"
	"github.com/baton-lb/baton/lb/store"
)

// writeList writes {"NAME":[…]} item by item, and a line feed.
func writeList[T any](w io.Writer, name string, items iter.Seq[T]) error {
	if _, err := io.WriteString(w, `{"`+name+`":[`); err != nil {
		return err
	}
	comma := ""
	for item := range items {
		b, err := json.Marshal(item)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, comma); err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		comma = ","
	}
	_, err := io.WriteString(w, "]}\n")
	return err
}

func (s *Server) getServices(w http.ResponseWriter, r *http.Request) {
	f, err := readFilter(r)
	if err != nil {
		fail(w, err)
		return
	}
	s.serveDocument(w, r, func(w io.Writer) error { return writeList(w, "services", s.services(&f)) })
}

// services lists the services that the filter selects, by name.
func (s *Server) services(f *Filter) iter.Seq[Service] {
	return func(yield func(Service) bool) {
		flows := s.flowsByService()
		for _, svc := range s.o.Store.Snapshot().Sorted() {
			if selectsService(f, svc) && !yield(s.serviceOf(svc, flows[svc.Name])) {
				return
			}
		}
	}
}

func (s *Server) serviceOf(svc *store.Service, flows int) Service {
	out := Service{
		Name: svc.Name, Frontends: make([]Frontend, 0, len(svc.Frontends)), Mode: svc.Mode,
		Backends: len(svc.Pool), Flows: flows, NotSteered: s.notSteered(svc),
	}
	for i := range svc.Frontends {
		fe := &svc.Frontends[i]
		st := s.o.Store.FrontendStatus(fe.FrontendKey)
		out.Frontends = append(out.Frontends, Frontend{fe.String(), string(st.State), st.Reason, frontendNotSteered(svc, fe)})
	}
	for _, b := range svc.Pool {
		if b.TakesNew() {
			out.Ready++
		}
	}
	return out
}

// notSteered is why a service is proxied where steering was asked for.
func (s *Server) notSteered(svc *store.Service) flow.NotSteered {
	switch {
	case svc.Unsteered:
		return svc.NotSteerable()
	case svc.Mode == flow.ModeSteer && s.o.Steers != nil && !s.o.Steers():
		return flow.NotSteeredKernel
	}
	return ""
}

// frontendNotSteered is why the relay has a frontend of a service that is steered.
func frontendNotSteered(svc *store.Service, fe *lb.Frontend) flow.NotSteered {
	if svc.Mode == flow.ModeSteer && !fe.Steered() {
		return flow.NotSteeredFrontend
	}
	return ""
}

// flowsByService counts the live flows, those at backends that are gone
// included.
func (s *Server) flowsByService() map[string]int {
	n := make(map[string]int)
	for _, rec := range s.o.Registry.Records() {
		n[rec.Service()]++
	}
	return n
}

// selectsService reports whether the filter selects the service: its name, one
// of its backends, and one of its frontends by address and protocol.
func selectsService(f *Filter, svc *store.Service) bool {
	if !f.MatchService(svc.Name) || !anyFrontend(f, svc.Frontends) {
		return false
	}
	if len(f.backends) == 0 {
		return true
	}
	for _, b := range svc.Pool {
		if f.MatchBackend(b.Address) {
			return true
		}
	}
	return false
}

func anyFrontend(f *Filter, frontends []lb.Frontend) bool {
	for i := range frontends {
		k := frontends[i].FrontendKey
		if f.MatchProtocol(k.Proto) && f.MatchFrontend(k.Proto, k.Address) {
			return true
		}
	}
	return false
}

func (s *Server) getBackends(w http.ResponseWriter, r *http.Request) {
	f, err := readFilter(r)
	if err != nil {
		fail(w, err)
		return
	}
	s.serveDocument(w, r, func(w io.Writer) error { return writeList(w, "backends", s.backends(&f)) })
}

// backends lists the backends that the filter selects, by service and in the
// order of its source.
func (s *Server) backends(f *Filter) iter.Seq[Backend] {
	return func(yield func(Backend) bool) {
		for _, svc := range s.o.Store.Snapshot().Sorted() {
			if !f.MatchService(svc.Name) || !anyFrontend(f, svc.Frontends) {
				continue
			}
			for _, b := range svc.Pool {
				if f.MatchBackend(b.Address) && !yield(backendOf(svc.Name, b)) {
					return
				}
			}
		}
	}
}

func backendOf(service string, b *sched.Backend) Backend {
	out := Backend{
		Service: service, Backend: b.Address, State: stateOf(b), Health: Healthy, Weight: b.Weight,
		Drained: b.Drained, Priority: b.Priority, MaxConnections: b.MaxConnections, Zone: b.Zone, Node: b.Node,
	}
	if b.Unhealthy {
		out.Health, out.HealthReason = Unhealthy, b.HealthReason
	}
	if b.Load != nil {
		out.Flows, out.Failures = b.Load.Flows(), b.Load.Failures()
	}
	return out
}

func stateOf(b *sched.Backend) BackendState {
	switch {
	case b.State == lb.StateDown:
		return BackendDown
	case b.NotServing:
		return BackendNotServing
	case b.State == lb.StateDrain || b.Drained:
		return BackendDrain
	case b.Terminating:
		return BackendTerminating
	}
	return BackendReady
}

func (s *Server) getInstance(w http.ResponseWriter, r *http.Request) {
	snap := s.o.Store.Snapshot()
	i := Instance{
		Holder: s.o.Instance, Version: s.o.Version, StartedAt: s.startedAt, Revision: snap.Revision,
		Services: snap.Len(), Flows: s.o.Registry.Len(),
	}
	if err := s.o.Readiness.Ready(); err != nil {
		i.NotReady = err.Error()
	}
	i.Ready = i.NotReady == ""
	writeJSON(w, http.StatusOK, i)
}

func (s *Server) getDoctor(w http.ResponseWriter, r *http.Request) {
	if s.o.Doctor == nil {
		fail(w, notFound(errNoDoctor))
		return
	}
	writeJSON(w, http.StatusOK, s.o.Doctor(r.Context()))
}
