package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/lb/health"
	"github.com/baton-lb/baton/lb/source/file"
	"github.com/baton-lb/baton/lb/store"
)

// takeOver makes everything ours that another instance has had until now. Before the
// last step that one can go on as if nothing had happened; from that step on clients
// and operators meet this one.
func (in *instance) takeOver(config *file.Config) error {
	b := in.before
	in.log.Info("ready to take over", "pid", b.pid, "version", b.offer.Version)
	if err := b.pause(); err != nil {
		return fmt.Errorf("take over from pid %d: %w", b.pid, err)
	}
	if in.guard != nil {
		if err := in.guard.bpf.Attach(); err != nil {
			return err
		}
	}
	if err := in.inheritLock(); err != nil {
		return err
	}
	if err := in.admin.Publish(); err != nil {
		return err
	}
	if err := b.release(); err != nil {
		return fmt.Errorf("take over from pid %d: %w", b.pid, err)
	}
	in.openKernelPath(config)
	in.adoptKernelFlows()
	if err := in.relay.Begin(b.takeSessions()); err != nil {
		in.log.Warn("not everything was taken over", "err", err)
	}
	in.lifecycle.SetReady()
	b.open()
	in.log.Info("taken over", "pid", b.pid, "version", b.offer.Version)
	return nil
}

func (in *instance) inheritLock() (err error) {
	f := in.before.other[otherSocket{Kind: otherLock}]
	if f == nil {
		return errors.New("the instance lock has not come over")
	}
	if in.lock, err = admin.InheritLock(f, in.holder()); err != nil {
		return err
	}
	in.onClose(in.lock.Close)
	return nil
}

// listenNodePort makes the listener of a health check node port.
func (in *instance) listenNodePort(network, address string) (net.Listener, error) {
	if l, err := in.before.listener(otherSocket{otherNodePort, address}); l != nil || err != nil {
		return l, err
	}
	return health.ListenPort(network, address)
}

// untilHandedOver is a programmer for what another process has once it has taken
// over.
func (in *instance) untilHandedOver(p store.Programmer) store.Programmer {
	return programmer(func(ctx context.Context, c store.Change) []store.Failure {
		if in.handing.isDone() {
			return nil
		}
		return p.Program(ctx, c)
	})
}

// programmer makes a function a store.Programmer.
type programmer func(context.Context, store.Change) []store.Failure

// Program implements store.Programmer.
func (p programmer) Program(ctx context.Context, c store.Change) []store.Failure { return p(ctx, c) }
