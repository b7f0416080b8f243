package relay

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/capture"
	"github.com/baton-lb/baton/lb/store"
)

// insiders is who is inside, beside those that a frontend names: this host. Nothing is
// read or watched before some frontend has clients inside.
type insiders struct {
	own atomic.Pointer[map[netip.Addr]struct{}] // this host's addresses; nil = not needed yet

	// Relay.mu guards what follows: what was joined last, as most frontends name the
	// same clients.
	from, joined []netip.Prefix
}

// inside reports whether a client is one that its frontend has InsideSubset for.
func (r *Relay) inside(fe *store.Frontend, client netip.Addr) bool {
	return len(fe.Inside) > 0 && (client.IsLoopback() || contains(fe.Inside, client) || r.insiders.isOwn(client))
}

func (i *insiders) isOwn(a netip.Addr) bool {
	own := i.own.Load()
	if own == nil {
		return false
	}
	_, ok := (*own)[a.WithZone("")]
	return ok
}

// loopback is this host's own without being configured.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// withHost adds this host's addresses to the clients that a frontend names.
func (i *insiders) withHost(from []netip.Prefix) []netip.Prefix {
	if i.joined != nil && slices.Equal(i.from, from) {
		return i.joined
	}
	all := slices.Concat(from, loopback)
	if own := i.own.Load(); own != nil {
		for _, a := range slices.SortedFunc(maps.Keys(*own), netip.Addr.Compare) {
			if !contains(all, a) {
				all = append(all, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	i.from, i.joined = from, all
	return all
}

// know takes this host's addresses, and reports whether they are others than before.
func (i *insiders) know(own map[netip.Addr]struct{}) bool {
	if before := i.own.Load(); before != nil && maps.Equal(*before, own) {
		return false
	}
	i.own.Store(&own)
	i.from, i.joined = nil, nil
	return true
}

// knowHostLocked reads this host's addresses and follows them from then on, once some
// frontend has clients inside.
func (r *Relay) knowHostLocked(c store.Change) error {
	if r.insiders.own.Load() != nil || !slices.ContainsFunc(c.Services, func(name string) bool {
		return slices.ContainsFunc(proxied(c.To, name), func(fe *store.Frontend) bool { return len(fe.Inside) > 0 })
	}) {
		return nil
	}
	own, err := capture.Addresses()
	if err != nil {
		return err
	}
	r.insiders.know(own)
	r.running.Go(func() {
		if err := capture.WatchAddresses(r.watching, r.renewInsiders); err != nil {
			r.log.Warn("changes of this host's addresses are not seen", "err", err)
		}
	})
	return nil
}

// renewInsiders tells the guard which addresses this host has now.
func (r *Relay) renewInsiders() {
	own, err := capture.Addresses()
	if err == nil {
		err = r.tellInsiders(own)
	}
	if err != nil {
		r.log.Warn("clients with a new address of this host may be taken for others", "err", err)
	}
}

func (r *Relay) tellInsiders(own map[netip.Addr]struct{}) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing || !r.insiders.know(own) || r.guarding.guard == nil {
		return nil
	}
	rules := maps.Clone(r.guarding.told)
	maps.DeleteFunc(rules, func(_ lb.FrontendKey, rule Rule) bool { return len(rule.Inside) == 0 })
	for k, rule := range rules {
		fe, ok := r.store.Snapshot().Frontend(k)
		if !ok || fe.FrontendKey != k {
			delete(rules, k) // the next round sees to it
			continue
		}
		rule.Inside = r.insiders.withHost(fe.Inside)
		rules[k] = rule
	}
	if err := r.guarding.tell(rules); err != nil {
		return fmt.Errorf("tell the guard: %w", err)
	}
	return nil
}
