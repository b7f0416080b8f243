package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay"
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

	it atomic.Pointer[transparent.Transparent] // nil = no service has asked, or it cannot be

	mu     sync.Mutex // guards what follows
	failed string     // what was last said of why it cannot be
	closed bool
}

var (
	_ relay.Transparency = (*transparency)(nil)
	_ store.Programmer   = (*transparency)(nil)
)

// Ask implements relay.Transparency.
func (t *transparency) Ask(client, backend netip.Addr) (why flow.NotTransparent, onlySockets bool) {
	if it := t.it.Load(); it != nil {
		return it.Ask(client, backend)
	}
	return flow.NotTransparentUnavailable, false
}

// Program implements store.Programmer, for the phase in which backends become known.
// That a host cannot keep addresses is no failure of a service: they are masked then.
func (t *transparency) Program(_ context.Context, c store.Change) []store.Failure {
	asked := false
	for _, name := range c.Services {
		for _, snapshot := range []*store.Snapshot{c.From, c.To} {
			if s, ok := snapshot.Service(name); ok && asksForClients(s) {
				asked = true
			}
		}
	}
	if !asked {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	peers := peersOf(c.To)
	if t.closed || len(peers) == 0 || !t.openLocked() {
		return nil
	}
	t.putLocked(peers, func(bpf.Peer) bool { return true })
	return nil
}

// openLocked reports whether addresses can be kept.
func (t *transparency) openLocked() bool {
	if t.it.Load() != nil {
		return true
	}
	it, err := transparent.Open(transparent.Options{Log: t.log})
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

// forget stops listening for backends that are gone and have no flows any more.
func (t *transparency) forget(now *store.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.it.Load() == nil {
		return
	}
	used := make(map[bpf.Peer]bool)
	for _, rec := range t.registry.Records() {
		if v := rec.View(); v.ClientAddress != "" && v.ClientAddress != flow.ClientMasked {
			used[bpf.Peer{Proto: v.Protocol, Address: v.Backend}] = true
		}
	}
	t.putLocked(peersOf(now), func(p bpf.Peer) bool { return used[p] })
}

func (t *transparency) putLocked(peers map[bpf.Peer]bool, inUse func(bpf.Peer) bool) {
	if err := t.it.Load().Peers(peers, inUse); err != nil {
		t.log.Error("answers of some backends to clients' addresses are not delivered", "err", err)
	}
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

// peersOf lists the backends whose answers are to be delivered.
func peersOf(snapshot *store.Snapshot) map[bpf.Peer]bool {
	peers := make(map[bpf.Peer]bool)
	for s := range snapshot.Services() {
		for _, proto := range protocolsThatAsk(s) {
			for _, b := range s.Pool {
				peers[bpf.Peer{Proto: proto, Address: b.Address}] = true
			}
		}
	}
	return peers
}

func asksForClients(s *store.Service) bool { return len(protocolsThatAsk(s)) > 0 }

// protocolsThatAsk lists those of a service's frontends that keep clients' addresses.
func protocolsThatAsk(s *store.Service) (protos []flow.Proto) {
	asks := make(map[flow.Proto]bool)
	for _, f := range s.FrontendSet {
		if cmp.Or(f.ClientAddress, s.ClientAddress) == lb.Transparent && !asks[f.Proto] {
			asks[f.Proto] = true
			protos = append(protos, f.Proto)
		}
	}
	return protos
}

// keepAddresses makes the instance able to keep clients' addresses.
func (in *instance) keepAddresses(o *relay.Options) {
	t := &transparency{log: in.log, registry: in.registry}
	in.transparency, o.Transparency = t, t
	in.store.Register(store.Backends, "clients' addresses", t)
	in.onClose(func() error { return t.close(in.handing.isDone()) })
}
