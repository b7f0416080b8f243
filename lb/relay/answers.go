package relay

import (
	"maps"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// answersLocked says what is to answer at the frontends of the changed services,
// those included that they had before. It is empty without a guard.
func (r *Relay) answersLocked(c store.Change) map[lb.FrontendKey]Answer {
	if r.guarding.guard == nil {
		return nil
	}
	answers := r.formerLocked(c)
	for _, name := range c.Services {
		for _, fe := range proxied(c.To, name) {
			answers[fe.FrontendKey] = r.answerLocked(fe)
		}
	}
	return answers
}

// formerLocked says what is to answer now at the frontends that the changed services
// had.
func (r *Relay) formerLocked(c store.Change) map[lb.FrontendKey]Answer {
	answers := make(map[lb.FrontendKey]Answer)
	for _, name := range c.Services {
		for _, k := range r.guarding.ofService[name] {
			answers[k] = AnswerNone
			if fe, ok := c.To.Frontend(k); ok && fe.FrontendKey == k && fe.Service.Mode == flow.ModeProxy {
				answers[k] = r.answerLocked(fe) // of this service still, or of another one
			}
		}
	}
	return answers
}

// closeFirstLocked tells the guard of what is about to lose its socket, so that
// nobody else's is found in its place.
func (r *Relay) closeFirstLocked(c store.Change) error {
	closing := r.formerLocked(c)
	maps.DeleteFunc(closing, func(_ lb.FrontendKey, a Answer) bool { return a == AnswerOwn || a == AnswerShared })
	return r.guarding.tell(closing)
}

// proxied lists the frontends of a service that this data path serves.
func proxied(s *store.Snapshot, service string) []*store.Frontend {
	if svc, ok := s.Service(service); ok && svc.Mode == flow.ModeProxy {
		return svc.FrontendSet
	}
	return nil
}

func (r *Relay) answerLocked(fe *store.Frontend) Answer {
	_, protected := r.guarding.protected[fe.Address.Addr()]
	udp := r.listeners.udp[fe.FrontendKey]
	usable := fe.Scheduler.Usable() > 0
	switch {
	case fe.Proto != flow.TCP && fe.Proto != flow.UDP, fe.Address.Addr().IsUnspecified():
		return AnswerNone
	case !usable && udp != nil && udp.sessions.Load() > 0:
		return AnswerOwn // for the sessions that are left: see udpRetired
	case !usable && fe.WhenNone == lb.Drop:
		return AnswerSilent
	case !protected:
		return AnswerNone
	case !usable:
		return AnswerRefuse
	case fe.Proto == flow.TCP && r.guarding.shares(fe.Address.Addr()):
		return AnswerShared
	}
	return AnswerOwn
}

// answerAllLocked tells the guard what answers now. Frontends that could not have
// their socket refuse; what the guard will not hear fails all that have not, so that they are
// tried again.
func (r *Relay) answerAllLocked(c store.Change, failures []store.Failure) []store.Failure {
	answers := r.answersLocked(c)
	for k, a := range answers {
		if r.socketlessLocked(k, a) {
			answers[k] = AnswerRefuse
		}
	}
	err := r.guarding.tell(answers)
	r.guarding.note(c)
	if err != nil {
		return failRest(c, failures, err)
	}
	return failures
}

// socketlessLocked reports whether a frontend lacks the socket that is to answer.
func (r *Relay) socketlessLocked(k lb.FrontendKey, a Answer) bool {
	switch a {
	case AnswerOwn:
		return r.listeners.open[k] == nil && r.listeners.udp[k] == nil
	case AnswerShared:
		return r.guarding.shared[k.Address.Addr().Is4()] == nil
	}
	return false
}

// failRest is a failure of every frontend of the changed services that has not
// failed yet.
func failRest(c store.Change, failures []store.Failure, err error) []store.Failure {
	failed := make(map[lb.FrontendKey]struct{}, len(failures))
	for _, f := range failures {
		failed[f.Frontend] = struct{}{}
	}
	for _, name := range c.Services {
		for _, fe := range proxied(c.To, name) {
			if _, ok := failed[fe.FrontendKey]; !ok {
				failures = append(failures, failure(fe, err))
			}
		}
	}
	return failures
}

// refuseAllLocked makes all frontends of a protocol refuse, for good.
func (r *Relay) refuseAllLocked(proto flow.Proto) {
	all := make(map[lb.FrontendKey]Answer)
	for k := range r.guarding.told {
		if k.Proto == proto {
			all[k] = AnswerNone
		}
	}
	if err := r.guarding.tell(all); err != nil {
		r.log.Warn("other sockets may answer at frontends while stopping", "err", err)
	}
}

// udpRetired is told by a loop that the last session has ended at a frontend
// without usable backends.
func (r *Relay) udpRetired(k lb.FrontendKey) {
	if r.guarding.guard == nil {
		return
	}
	// The control plane waits for loops, so no loop waits for it.
	r.running.Go(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		fe, ok := r.store.Snapshot().Frontend(k)
		if r.closing || !ok || fe.FrontendKey != k || fe.Scheduler.Usable() > 0 {
			return // the next round sees to it
		}
		if err := r.guarding.tell(map[lb.FrontendKey]Answer{k: r.answerLocked(fe)}); err != nil {
			r.log.Warn("a frontend without usable backends may be answered at by others", "frontend", k.String(), "err", err)
		}
	})
}
