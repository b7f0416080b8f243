package store

import (
	"net/netip"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/sched"
)

// txn is the next snapshot in the making. Only a holder of Store.mu has one,
// and only for changes that are known to be right: it always commits.
type txn struct {
	store     *Store
	revision  uint64
	services  *serviceEdit
	frontends *frontendEdit
	counts    Counts
	changed   []string
	gone      []*flow.Load // of backends that have left
}

func (s *Store) begin() *txn {
	from := s.Snapshot()
	return &txn{
		store:     s,
		revision:  from.Revision + 1,
		services:  from.services.edit(),
		frontends: from.frontends.edit(),
		counts:    from.counts,
	}
}

// apply carries out a plan if it has no fault and changes anything.
func (s *Store) apply(p *plan) error {
	if err := p.check(); err != nil || p.empty() {
		return err
	}
	t := s.begin()
	old := make([]*Service, len(p.puts))
	for i, svc := range p.puts {
		old[i], _ = p.from.Service(svc.Name)
	}
	// All that goes first: a frontend may move from one service to another.
	for _, svc := range p.removes {
		t.drop(svc)
		t.services.remove(hashName(svc.Name), svc.Name)
		t.changed = append(t.changed, svc.Name)
		for _, b := range svc.Pool {
			t.gone = append(t.gone, b.Load)
		}
	}
	for _, svc := range old {
		t.drop(svc)
	}
	for i, svc := range p.puts {
		t.add(t.build(svc, p.source, old[i], nil))
	}
	t.commit()
	return nil
}

// rebuild publishes a service as it is, with what has changed about the health
// or the drain of its backends.
func (t *txn) rebuild(old *Service, health map[netip.AddrPort]Health) {
	t.drop(old)
	t.add(t.build(&old.Service, old.Source, old, health))
}

// drop takes out the frontends of a service, if there is one.
func (t *txn) drop(svc *Service) {
	if svc == nil {
		return
	}
	leave(t.frontends, svc)
	t.count(svc, -1)
}

// add enters a service and its frontends.
func (t *txn) add(svc *Service) {
	enter(t.services, t.frontends, svc)
	t.count(svc, 1)
	t.changed = append(t.changed, svc.Name)
}

func (t *txn) count(svc *Service, n int) {
	t.counts.Services += n
	t.counts.Frontends += n * len(svc.FrontendSet)
	t.counts.Backends += n * len(svc.Pool)
	for _, fe := range svc.FrontendSet {
		if fe.Address.Addr().IsUnspecified() {
			t.counts.wildcards += n
		}
	}
}

// commit publishes the snapshot, if there is any change, and gives back what
// nobody may pick any more.
func (t *txn) commit() {
	if len(t.changed) == 0 {
		return
	}
	t.store.publish(&Snapshot{
		Revision:  t.revision,
		services:  t.services.table,
		frontends: t.frontends.table,
		counts:    t.counts,
	}, t.changed)
	for _, l := range t.gone {
		t.store.registry.Release(l)
	}
}

// build makes the service to publish out of a valid one. What old knows of a
// backend is kept: its Load, its health unless there is news of it, and the
// rotation of its schedulers.
func (t *txn) build(svc *lb.Service, source string, old *Service, health map[netip.AddrPort]Health) *Service {
	n := &Service{Service: *svc, Source: source, Revision: t.revision}
	t.fill(n, old)
	for _, b := range n.Pool {
		if h, ok := health[b.Address]; ok {
			b.Unhealthy, b.HealthReason, b.Ramp = h.Unhealthy, h.Reason, h.Ramp
		}
		b.Drained = t.store.isDrained(n.Name, b.Address)
	}
	fes := make([]Frontend, len(n.Frontends))
	n.FrontendSet = make([]*Frontend, len(fes))
	for i := range fes {
		fes[i] = Frontend{Frontend: &n.Frontends[i], Service: n, asked: n.Frontends[i].FrontendKey}
		fes[i].Scheduler = t.scheduler(n, fes[i].Selection(false), old)
		if fes[i].inside = fes[i].Scheduler; len(fes[i].Inside) > 0 {
			fes[i].inside = t.scheduler(n, fes[i].Selection(true), old)
		}
		n.FrontendSet[i] = &fes[i]
	}
	return n
}

// fill makes the pool of n: one entry per address, the best of those listed
// (better), with what old knows of it.
func (t *txn) fill(n, old *Service) {
	all := make([]sched.Backend, 0, len(n.Backends))
	n.Pool = make([]*sched.Backend, 0, len(n.Backends))
	n.index = newIndex(len(n.Backends))
	for i := range n.Backends {
		b := &n.Backends[i]
		if same, twice := n.Backend(b.Address); twice {
			if better(b, same.Backend) {
				same.Backend = b
			}
			continue
		}
		all = append(all, sched.Backend{Backend: b})
		p := &all[len(all)-1]
		n.Pool = append(n.Pool, p)
		n.index.add(len(n.Pool)-1, b.Address)
		if was, ok := old.Backend(b.Address); ok {
			p.Load = was.Load
			p.Unhealthy, p.HealthReason, p.Ramp = was.Unhealthy, was.HealthReason, was.Ramp
		} else {
			p.Load = t.store.registry.Acquire(n.Name, b.Address)
		}
	}
	if old == nil {
		return
	}
	for _, was := range old.Pool {
		if _, stays := n.Backend(was.Address); !stays {
			t.gone = append(t.gone, was.Load)
		}
	}
}

// scheduler returns the one for a selection of n's pool: that of an earlier
// frontend with the same selection, else a new one.
func (t *txn) scheduler(n *Service, selection lb.Selection, old *Service) *sched.Scheduler {
	if same := n.scheduler(selection); same != nil {
		return same
	}
	pool := n.Pool
	if !selection.IsAll() {
		pool = nil
		for _, b := range n.Pool {
			if selection.Has(b.Backend) {
				pool = append(pool, b)
			}
		}
	}
	made := sched.New(n.Balance, pool, sched.Options{Zone: t.store.zone, Previous: old.scheduler(selection)})
	n.schedulers = append(n.schedulers, scheduler{selection, made})
	return made
}
