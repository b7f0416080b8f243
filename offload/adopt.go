package offload

import (
	"time"

	"github.com/baton-lb/baton/internal/clock"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/handoff"
	"github.com/baton-lb/baton/offload/bpf"
)

// portsInUse is the source ports of flows in the kernel.
func portsInUse(found []Flow) (s portSet) {
	for _, f := range found {
		if spec := f.Spec(); spec.Proto == flow.TCP {
			s.add(spec.Local.Port())
		}
	}
	return s
}

// adoptAll takes over what an earlier process has left in the kernel.
func (o *Offloader) adoptAll(found []Flow) {
	for _, f := range found {
		spec := f.Spec()
		n, err := unmarshalNote(spec.Note)
		switch {
		case spec.Proto == flow.UDP && err == nil && f.Gate() == bpf.GateForward:
			o.keep(f, &spec, &n)
		case spec.Proto == flow.UDP:
			o.drop(f) // its datagrams arrive at sockets, or are refused
		default:
			o.adopt(f, &spec, n, err)
		}
	}
}

func (o *Offloader) drop(f Flow) {
	if err := f.Delete(); err != nil {
		o.log.Warn("delete flow of an earlier process", "err", err)
	}
}

// keep lists a session for the data path.
func (o *Offloader) keep(f Flow, spec *bpf.FlowSpec, n *note) {
	client, frontend := n.asked(spec)
	o.kept = append(o.kept, handoff.Kept{
		ID: n.ID, StartedAt: n.StartedAt, HandedOffAt: n.HandedOffAt, Picked: n.Picked, Service: n.Service, Base: n.Base,
		Carrier: &carrier{o: o, flow: f},
		Session: handoff.Session{Client: client, Frontend: frontend, Source: spec.Local, Backend: spec.Backend},
	})
	o.udp++
}

// adopt takes over a TCP flow. One that was not forwarded had its sockets in the
// process that is gone, and they are gone with it.
func (o *Offloader) adopt(f Flow, spec *bpf.FlowSpec, n note, unknown error) {
	gate := f.Gate()
	if !carries(gate) {
		o.drop(f)
		return
	}
	p := &path{o: o, flow: f, spec: *spec, note: n, lent: n.lent(spec), attached: true}
	p.alarm.ring = p.look
	p.seen.at = clock.Monotonic()
	if n.HandedOffAt.IsZero() { // the process died before it could write that down
		st := f.State()
		p.note.ToBackendDelta, p.note.ToClientDelta = st.Directions[toBackend].Rewrite.Seq, st.Directions[toClient].Rewrite.Seq
	}
	if p.lent {
		o.ports.mark(spec.Local, spec.Backend)
	}
	o.paths[f] = p
	switch {
	case gate == bpf.GateReset:
		p.over, p.overAt, p.linger = true, o.now(), endedLinger
	case n.Ended: // and the earlier process has said so
		p.over, p.overAt, p.linger = true, o.now(), closedLinger
	case unknown != nil:
		// Nobody could ever find it or end it: its peers had better begin anew.
		o.log.Warn("reset a flow that nobody knows", "client", spec.Client, "frontend", spec.Frontend, "err", unknown)
		p.resetLocked(flow.ByBaton, flow.ReasonServiceRemoved)
	default:
		p.open()
	}
	o.wheel.set(&p.alarm, o.now())
}

// open lists a flow of an earlier process.
func (p *path) open() {
	n := &p.note
	client, frontend := n.asked(&p.spec)
	load := p.o.Registry.Acquire(n.Service, p.spec.Backend)
	handedOffAt := n.HandedOffAt
	if handedOffAt.IsZero() { // the process died in the middle of it
		handedOffAt = time.Now()
	}
	p.record = p.o.Registry.Open(flow.Spec{
		Proto: flow.TCP, Service: n.Service, Frontend: frontend, Client: client,
		ID: n.ID, StartedAt: n.StartedAt, Counters: n.Base,
		Backend: p.spec.Backend, Picked: n.Picked, Load: load,
		PathName: flow.PathBPF, Path: p, HandedOffAt: handedOffAt,
	})
	p.record.SeenAs(n.seenAs(&p.spec), n.NotTransparent)
	p.record.WhenEnded(func() { p.o.Registry.Release(load) })
	p.adopted = true
}

// Adopt asks Options.Adopt about the flows of an earlier process, once whoever is
// asked knows which services there are. It returns how many it has ended.
func (o *Offloader) Adopt() (ended int) {
	if o.Options.Adopt == nil {
		return 0
	}
	for _, p := range o.allPaths() {
		if !p.adopted || p.record == nil {
			continue
		}
		client, frontend := p.note.asked(&p.spec)
		keep, why := o.Options.Adopt(Adopted{
			Service: p.note.Service, Client: client, Frontend: frontend, Backend: p.spec.Backend, Record: p.record,
		})
		if !keep && p.reset(flow.ByBaton, why) {
			ended++
		}
	}
	return ended
}

// Kept is the UDP sessions of an earlier process that the kernel carries. The caller
// goes on with each of them, or withdraws it.
func (o *Offloader) Kept() []handoff.Kept {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := o.kept
	o.kept = nil
	return kept
}
