package main

import (
	"context"
	"fmt"
	"maps"

	"github.com/spf13/cobra"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/admin/client"
	"github.com/baton-lb/baton/internal/flow"
	steering "github.com/baton-lb/baton/lb/steer/program"
	"github.com/baton-lb/baton/offload/bpf"
)

func newHandoffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "handoff ID",
		Short: "Hand a flow over to the kernel now",
		Long: `Hand the flow with this id, as ` + "`baton flows`" + ` shows it, over to the kernel now,
whether or not it is old and big enough for its service's offload policy; the
first digits of the id are enough, four or more, when no other flow begins like
that. When the flow stays in userspace the command says why and exits with 1.`,
	}
	return newFlowCommand(cmd, func(ctx context.Context, c *client.Client, id string) (a flowAnswer, err error) {
		res, err := c.Handoff(ctx, id)
		if err != nil {
			return a, err
		}
		a = flowAnswer{result: res, flow: res.Flow, what: "handed off to " + string(res.Flow.Path)}
		if res.Before {
			a.what = "was handed off before, to " + string(res.Flow.Path)
		}
		if res.Result != flow.HandoffDone {
			a.notFine = notHandedOff(&res)
		}
		return a, nil
	})
}

// notHandedOff says why a flow stays where it is.
func notHandedOff(res *admin.HandoffResult) error {
	id := res.Flow.ID
	if res.Result == flow.HandoffEnded {
		return fmt.Errorf("flow %s has just ended: by %s, %s", id, res.Flow.EndedBy, res.Flow.Reason)
	}
	err := fmt.Errorf("flow %s stays in userspace: %s", id, res.Result)
	if res.NotOffloaded != "" && string(res.NotOffloaded) != string(res.Result) {
		err = fmt.Errorf("%w: %s", err, res.NotOffloaded)
	}
	if res.Detail != "" {
		err = fmt.Errorf("%w: %s", err, res.Detail)
	}
	return err
}

// handoffs asks whoever has a flow to hand it off: UDP sessions are the relay's,
// connections have been offered to the offloader.
type handoffs struct {
	registry *flow.Registry
	tcp      admin.Handoffs
	udp      admin.Handoffs
}

var _ admin.Handoffs = (*handoffs)(nil)

func (h *handoffs) Handoff(id flow.ID) (flow.HandoffResult, flow.NotOffloaded, error) {
	rec, ok := h.registry.Get(id)
	switch {
	case !ok:
		return flow.HandoffEnded, "", nil
	case rec.Key().Proto() == flow.UDP:
		return h.udp.Handoff(id)
	}
	return h.tcp.Handoff(id)
}

// None says that this host will never hand anything over: see handoff.Offloader.
func (k *kernelPath) None() bool { return k.none.Load() }

// dropsBeside is what somebody else counts, which may be nil, and what the kernel
// threw away of the flows that it carries.
func (k *kernelPath) dropsBeside(others func() map[flow.Drop]uint64) func() map[flow.Drop]uint64 {
	return func() map[flow.Drop]uint64 {
		all := make(map[flow.Drop]uint64)
		if others != nil {
			maps.Copy(all, others())
		}
		if k.offloader.Load() == nil {
			return all
		}
		counts, err := k.flows.Counts()
		if err != nil {
			return all
		}
		for why, n := range droppedIn(counts) {
			all[why] += n
		}
		if p, err := k.flows.Steer(); err == nil {
			for why, n := range notSteered(p.Counts()) {
				all[why] += n
			}
		}
		return all
	}
}

// notSteered says in the words of the metrics what the program has not made flows of.
func notSteered(c steering.Counts) map[flow.Drop]uint64 {
	return map[flow.Drop]uint64{
		flow.DropNoUsable: c.Refused + c.Dropped, flow.DropDenied: c.RefusedSource, flow.DropLimit: c.OverLimit,
		flow.DropNoMemory: c.Full, flow.DropNoPorts: c.NoPort, flow.DropEvents: c.EventsLost,
	}
}

// droppedIn says in the words of the metrics what BPF programs have counted.
func droppedIn(c map[bpf.FlowCount]uint64) map[flow.Drop]uint64 {
	return map[flow.Drop]uint64{
		flow.DropTooBig: c[bpf.FlowsTooBig], flow.DropUnreachable: c[bpf.FlowsNoWay], flow.DropExpired: c[bpf.FlowsExpired],
		flow.DropHeld: c[bpf.FlowsHeld], flow.DropOddPacket: c[bpf.FlowsOdd], flow.DropOwnStack: c[bpf.FlowsOwn],
		flow.DropKernelFailed: c[bpf.FlowsFailed],
	}
}
