package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/relay"
	steering "github.com/baton-lb/baton/lb/steer/program"
	"github.com/baton-lb/baton/lb/store"
	"github.com/baton-lb/baton/offload/bpf"
	"github.com/baton-lb/baton/offload/transparent"
)

// transparency has clients' addresses kept for the services that ask for it. What it
// needs of the kernel is there from the first such service until the end.
type transparency struct {
	// Immutable.
	log      *slog.Logger
	registry *flow.Registry
	node     bool // of a cluster

	it      atomic.Pointer[transparent.Transparent] // nil = no service has asked, or it cannot be
	missing atomic.Pointer[map[netip.Addr]struct{}] // backends that could not be added; nil = none

	mu     sync.Mutex // guards what follows
	peers  peers
	failed string // what was last said of why it cannot be
	closed bool
}

var (
	_ relay.Transparency = (*transparency)(nil)
	_ store.Programmer   = (*transparency)(nil)
)

// Ask implements relay.Transparency.
func (t *transparency) Ask(client, backend netip.Addr) (why flow.NotTransparent, onlySockets bool) {
	it := t.it.Load()
	if it == nil {
		return flow.NotTransparentUnavailable, false
	}
	if missing := t.missing.Load(); missing != nil {
		if _, ok := (*missing)[backend]; ok {
			return flow.NotTransparentUnavailable, false
		}
	}
	return it.Ask(client, backend)
}

// Keep says which clients' addresses a backend may see of flows that the kernel carries from the first packet.
func (t *transparency) Keep(backend netip.Addr) steering.Keep {
	it := t.it.Load()
	if it == nil {
		return steering.Keep{}
	}
	way := it.Way(backend)
	return steering.Keep{Near: !way.Here, Far: !way.Tunnel, Beside: !t.node, Bridged: way.Bridge}
}

// Program implements store.Programmer, for the phase in which backends become known.
// That a host cannot keep addresses is no failure of a service: they are masked then.
func (t *transparency) Program(_ context.Context, c store.Change) []store.Failure {
	t.mu.Lock()
	defer t.mu.Unlock()
	added := t.peers.follow(c.Services, c.To)
	switch {
	case t.closed, len(added) == 0 && t.it.Load() != nil, len(t.peers.by) == 0:
		return nil
	case t.it.Load() == nil:
		if !t.openLocked() {
			return nil
		}
		added = t.peers.all()
	}
	t.addLocked(added)
	return nil
}

// openLocked reports whether addresses can be kept.
func (t *transparency) openLocked() bool {
	if t.it.Load() != nil {
		return true
	}
	it, err := transparent.Open(transparent.Options{Peers: max(bpf.DefaultPeers, 2*len(t.peers.by)), Log: t.log, Node: t.node})
	if err != nil {
		if t.failed != err.Error() {
			t.log.Error("clients' addresses are masked: services with clientAddress transparent cannot have them (see baton doctor)", "err", err)
		}
		t.failed = err.Error()
		return false
	}
	var devices []string
	for _, d := range it.Devices() {
		if d.How != "" {
			devices = append(devices, d.Name)
		}
	}
	t.log.Info("clients' addresses are kept where their answers come by here", "devices", devices,
		"mark", fmt.Sprintf("%#x", transparent.Mark), "table", transparent.Table)
	t.it.Store(it)
	return true
}

// forget stops listening for backends that are gone and have no flows any more, and
// tries again what failed.
func (t *transparency) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	it := t.it.Load()
	if t.closed || it == nil {
		return
	}
	if len(t.peers.gone) > 0 {
		unused := t.peers.unused(t.used())
		if err := it.Remove(unused); err != nil {
			t.log.Error("answers of backends that are gone are still listened for", "err", err)
		} else {
			t.peers.forget(unused)
		}
	}
	if t.missing.Load() != nil && t.addLocked(t.peers.all()) {
		t.missing.Store(nil)
	}
}

// used says of which backends flows have clients' addresses.
func (t *transparency) used() func(bpf.Peer) bool {
	used := make(map[bpf.Peer]bool)
	for _, rec := range t.registry.Records() {
		if v := rec.View(); v.ClientAddress != "" && v.ClientAddress != flow.ClientMasked {
			used[bpf.Peer{Proto: v.Protocol, Address: v.Backend}] = true
		}
	}
	return func(p bpf.Peer) bool { return used[p] }
}

// addLocked has the answers of backends delivered. Where that cannot be, addresses are
// masked, for the dials would wait for answers in vain.
func (t *transparency) addLocked(added []bpf.Peer) bool {
	err := t.it.Load().Add(added)
	if err == nil {
		return true
	}
	missing := make(map[netip.Addr]struct{}, len(added))
	if before := t.missing.Load(); before != nil {
		maps.Copy(missing, *before)
	}
	for _, p := range added {
		missing[p.Address.Addr()] = struct{}{}
	}
	t.missing.Store(&missing)
	t.log.Error("clients' addresses are masked at some backends", "backends", len(missing), "err", err)
	return false
}

// close leaves nothing in the kernel, or to another process what that has begun to
// use.
func (t *transparency) close(handedOver bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	it := t.it.Swap(nil)
	switch {
	case it == nil:
		return nil
	case handedOver:
		return it.Detach()
	}
	return it.Close()
}

// keepAddresses makes the instance able to keep clients' addresses.
func (in *instance) keepAddresses(o *relay.Options) {
	t := &transparency{log: in.log, registry: in.registry, node: in.kube != nil, peers: newPeers()}
	in.transparency, o.Transparency = t, t
	in.store.Register(store.Backends, "clients' addresses", t)
	in.onClose(func() error { return t.close(in.handing.isDone()) })
}
