package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/baton-lb/baton/internal/admin/doctor"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay"
	"github.com/baton-lb/baton/lb/relay/capture"
	"github.com/baton-lb/baton/offload/bpf"
)

// guard is a BPF guard in the words of the relay.
type guard struct{ bpf *bpf.Guard }

var _ relay.Guard = guard{}

var bpfAnswers = map[relay.Answer]bpf.Answer{
	relay.AnswerNone: bpf.AnswerOwn, // whatever socket is there
	relay.AnswerOwn:  bpf.AnswerOwn, relay.AnswerShared: bpf.AnswerShared,
	relay.AnswerSilent: bpf.AnswerSilent, relay.AnswerRefuse: bpf.AnswerRefuse,
}

func (g guard) Protect(vips []netip.Addr) error {
	return g.bpf.Update(bpf.GuardUpdate{Protect: vips})
}

func (g guard) Unprotect(vips []netip.Addr) error {
	return g.bpf.Update(bpf.GuardUpdate{Unprotect: vips})
}

func (g guard) Answer(at map[lb.FrontendKey]relay.Rule) error {
	u := bpf.GuardUpdate{Rules: make(map[lb.FrontendKey]bpf.Rule, len(at))}
	for k, r := range at {
		if r.Answer == relay.AnswerNone && len(r.Inside) == 0 {
			u.Forget = append(u.Forget, k)
			continue
		}
		u.Rules[k] = bpf.Rule{
			All: bpfAnswers[r.Answer], Inside: bpfAnswers[r.InsideAnswer], Sources: bpf.Sources{Allow: r.Allow, Inside: r.Inside},
		}
	}
	return g.bpf.Update(u)
}

func (g guard) Share(fd int) error { return g.bpf.Share(fd) }

// drops is what the guard kept away, in the words of the metrics.
func (g guard) drops() map[flow.Drop]uint64 {
	c, err := g.bpf.Counts()
	if err != nil {
		return nil
	}
	return map[flow.Drop]uint64{
		flow.DropClosedPort: c.Closed, flow.DropNoUsable: c.Refused + c.Silent, flow.DropShutdown: c.NoSocket,
		flow.DropDenied: c.Denied,
	}
}

// attachGuard gives the instance a guard. Without one it serves all the same,
// unless the configuration asks for what needs it.
func (in *instance) attachGuard(mode capture.Mode) error {
	if mode == capture.Bind {
		in.noGuard = errors.New("capture bind needs none")
		return nil
	}
	load := bpf.AttachGuard
	if in.before != nil { // whose guard is there yet: see takeOver
		load = bpf.LoadGuard
	}
	b, err := load(bpf.GuardOptions{})
	if err != nil && mode == capture.SKLookup {
		return fmt.Errorf("capture sklookup: %w", err)
	}
	if err != nil {
		in.noGuard = err
		return nil
	}
	in.guard = &guard{bpf: b}
	in.onClose(b.Close)
	return nil
}

// tryGuard attaches a guard where the calling thread is, and takes it away again.
func tryGuard() error {
	g, err := bpf.AttachGuard(bpf.GuardOptions{Frontends: 1})
	if err != nil {
		return err
	}
	return g.Close()
}

// kernelProbes are what the doctor asks the kernel about its programs.
func kernelProbes() (probes []doctor.Probe) {
	for _, f := range slices.Concat(bpf.Features(), bpf.DivertFeatures()) {
		probes = append(probes, doctor.Probe{Name: f.Name, Run: func() doctor.Finding { return featureFinding(f) }})
	}
	return probes
}

func featureFinding(f bpf.Feature) doctor.Finding {
	err := f.Have()
	switch {
	case err == nil:
		return doctor.Finding{Answer: doctor.Present, Detail: f.Uses}
	case errors.Is(err, bpf.ErrNotSupported):
		return doctor.Finding{
			Answer: doctor.Absent, Detail: f.Uses,
			Todo: fmt.Sprintf("a kernel from Linux %s on, built with it", f.Since),
		}
	}
	return doctor.Finding{Answer: doctor.Inconclusive, Detail: err.Error()}
}
