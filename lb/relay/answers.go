package relay

import (
	"maps"
	"slices"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// rulesLocked says what is to answer at the frontends of the changed services, those
// included that they had before. It is empty without a guard.
func (r *Relay) rulesLocked(c store.Change) map[lb.FrontendKey]Rule {
	if r.guarding.guard == nil {
		return nil
	}
	rules := r.formerLocked(c)
	for _, name := range c.Services {
		for _, fe := range proxied(c.To, name) {
			rules[fe.FrontendKey] = r.ruleLocked(fe)
		}
	}
	return rules
}

// formerLocked says what is to answer now at the frontends that the changed services
// had.
func (r *Relay) formerLocked(c store.Change) map[lb.FrontendKey]Rule {
	rules := make(map[lb.FrontendKey]Rule)
	for _, name := range c.Services {
		for _, k := range r.guarding.ofService[name] {
			rules[k] = Rule{}
			if fe, ok := c.To.Frontend(k); ok && fe.FrontendKey == k {
				rules[k] = r.ruleLocked(fe) // of this service still, or of another one
			}
		}
	}
	return rules
}

// closeFirstLocked tells the guard of what is about to lose its socket, so that
// nobody else's is found in its place. What it does not know had none: its port may
// be somebody else's.
func (r *Relay) closeFirstLocked(c store.Change) error {
	closing := r.formerLocked(c)
	maps.DeleteFunc(closing, func(k lb.FrontendKey, rule Rule) bool {
		_, known := r.guarding.told[k]
		return !known || rule.gives(AnswerOwn, AnswerShared)
	})
	return r.guarding.tell(closing)
}

// proxied lists the frontends of a service that this data path serves: of mode steer too, for what the kernel's program
// does not take.
func proxied(s *store.Snapshot, service string) []*store.Frontend {
	if svc, ok := s.Service(service); ok {
		return svc.FrontendSet
	}
	return nil
}

// ruleLocked says what is to answer at a frontend.
func (r *Relay) ruleLocked(fe *store.Frontend) Rule {
	rule := Rule{Answer: r.answerLocked(fe, false)}
	if inside := r.answerLocked(fe, true); inside != rule.Answer {
		rule.Inside, rule.InsideAnswer = r.insiders.withHost(fe.Inside), inside
	}
	if len(fe.AllowSources) > 0 && !rule.none() {
		// Who may, behind a proxy, is known when its header is there.
		rule.Allow = slices.Concat(fe.AllowSources, fe.Service.AcceptProxy)
	}
	return rule
}

// answerLocked says what is to answer to clients outside, or to those inside.
func (r *Relay) answerLocked(fe *store.Frontend, inside bool) Answer {
	_, protected := r.guarding.protected[fe.Address.Addr()]
	udp := r.listeners.udp[fe.FrontendKey]
	usable := fe.For(inside).Usable() > 0
	switch {
	case fe.Proto != flow.TCP && fe.Proto != flow.UDP:
		return AnswerNone
	case !usable && udp != nil && udp.sessions.Load() > 0:
		return AnswerOwn // for the sessions that are left: see udpRetired
	case !usable && fe.WhenNone == lb.Drop:
		return AnswerSilent
	case !usable && (protected || fe.Usable()): // a socket may be there for others
		return AnswerRefuse
	case !usable:
		return AnswerNone // nor is it ours to refuse at an address of the host
	case fe.Proto == flow.TCP && r.throughSharedLocked(fe.FrontendKey):
		return AnswerShared
	}
	return AnswerOwn
}

// throughSharedLocked reports whether connections to a frontend come through a shared
// socket. At the wildcard address they do not from the start where others of ours listen
// at the same port.
func (r *Relay) throughSharedLocked(k lb.FrontendKey) bool {
	addr := k.Address.Addr()
	if r.listeners.open[k] != nil || !r.guarding.shares(addr) {
		return false
	}
	_, already := r.guarding.told[k]
	return !addr.IsUnspecified() || already || !r.inherit.has(k) && len(r.listeners.onPort(k)) == 0
}

// answerAllLocked tells the guard what answers now. Frontends that could not have
// their socket refuse, or are left to the kernel at addresses of the host, where
// somebody else may have the port. What the guard will not hear fails all that have
// not failed, so that they are tried again.
func (r *Relay) answerAllLocked(c store.Change, failures []store.Failure) []store.Failure {
	rules := r.rulesLocked(c)
	failed := failedOf(failures)
	for k, rule := range rules {
		_, protected := r.guarding.protected[k.Address.Addr()]
		_, without := failed[k]
		switch missing := r.socketlessLocked(k, rule); {
		case protected && missing:
			rules[k] = Rule{Answer: AnswerRefuse}
		case !protected && (missing || without):
			rules[k] = Rule{}
		}
	}
	err := r.guarding.tell(rules)
	r.guarding.note(c)
	if err != nil {
		return failRest(c, failures, err)
	}
	return failures
}

// socketlessLocked reports whether a frontend lacks a socket that is to answer.
func (r *Relay) socketlessLocked(k lb.FrontendKey, rule Rule) bool {
	return rule.gives(AnswerOwn) && r.listeners.open[k] == nil && r.listeners.udp[k] == nil ||
		rule.gives(AnswerShared) && r.guarding.shared[k.Address.Addr().Is4()] == nil
}

func failedOf(failures []store.Failure) map[lb.FrontendKey]struct{} {
	failed := make(map[lb.FrontendKey]struct{}, len(failures))
	for _, f := range failures {
		failed[f.Frontend] = struct{}{}
	}
	return failed
}

// failRest is a failure of every frontend of the changed services that has not
// failed yet.
func failRest(c store.Change, failures []store.Failure, err error) []store.Failure {
	failed := failedOf(failures)
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
	all := make(map[lb.FrontendKey]Rule)
	for k := range r.guarding.told {
		if k.Proto == proto {
			all[k] = Rule{}
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
		if r.closing || !ok || fe.FrontendKey != k || fe.Usable() {
			return // the next round sees to it
		}
		if err := r.guarding.tell(map[lb.FrontendKey]Rule{k: r.ruleLocked(fe)}); err != nil {
			r.log.Warn("a frontend without usable backends may be answered at by others", "frontend", k.String(), "err", err)
		}
	})
}
