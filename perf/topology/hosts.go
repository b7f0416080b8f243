package topology

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"

	"github.com/baton-lb/baton/internal/testnet"
)

// Topology is a blueprint of hosts.
type Topology interface {
	Name() string
	// Build makes the hosts. They last until Hosts.Close.
	Build(ctx context.Context) (*Hosts, error)
}

// Hosts are a client, a balancer and backends.
type Hosts struct {
	// Immutable after Build.
	Client   *testnet.Host
	Balancer *testnet.Host
	Backends []*testnet.Host

	VIP       netip.Addr   // no host has it: a balancer takes it its own way
	ClientAt  netip.Addr   // where the client's traffic comes from
	BackendAt []netip.Addr // in the order of Backends
	MaskedAt  []netip.Addr // the balancer's addresses towards backends
	ClientDev string       // the balancer's device towards the client

	ctx context.Context

	mu      sync.Mutex // guards what follows
	undo    []func()
	failure error // the first
}

var _ testnet.TB = (*Hosts)(nil)

// newHosts has hosts made by build, on a goroutine that a failure ends.
func newHosts(ctx context.Context, build func(*Hosts)) (*Hosts, error) {
	h := &Hosts{ctx: ctx}
	if err := h.Try(func() { build(h) }); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// Try runs f, which uses the hosts, and returns what failed. A failure ends f.
func (h *Hosts) Try(f func()) error {
	var running sync.WaitGroup
	running.Go(f)
	running.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.failure
	h.failure = nil
	return err
}

// Close ends the hosts and everything in them. It may be called more than once.
func (h *Hosts) Close() error {
	for {
		h.mu.Lock()
		last := len(h.undo) - 1
		if last < 0 {
			err := h.failure
			h.mu.Unlock()
			return err
		}
		f := h.undo[last]
		h.undo = h.undo[:last]
		h.mu.Unlock()
		f()
	}
}

// BackendAddr is where backend i (from 0, modulo their number) serves s.
func (h *Hosts) BackendAddr(i int, s Service) netip.AddrPort {
	return netip.AddrPortFrom(h.BackendAt[i%len(h.BackendAt)], s.Port)
}

// VIPAddr is where the balancer serves s.
func (h *Hosts) VIPAddr(s Service) netip.AddrPort { return netip.AddrPortFrom(h.VIP, s.Port) }

// The methods below make Hosts what testnet wants of a test.

// Helper implements testnet.TB.
func (h *Hosts) Helper() {}

// Context implements testnet.TB.
func (h *Hosts) Context() context.Context { return h.ctx }

// Cleanup has f called by Close, the last first.
func (h *Hosts) Cleanup(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.undo = append(h.undo, f)
}

// Fatalf ends the goroutine that calls it, and Try returns the error.
func (h *Hosts) Fatalf(format string, args ...any) {
	h.mu.Lock()
	if h.failure == nil {
		h.failure = fmt.Errorf(format, args...)
	}
	h.mu.Unlock()
	runtime.Goexit()
}

// Skipf is Fatalf.
func (h *Hosts) Skipf(format string, args ...any) { h.Fatalf(format, args...) }
