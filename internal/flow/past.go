package flow

import "time"

// End is how a flow has ended.
type End struct {
	At     time.Time
	By     By
	Reason Reason

	// As for SeenAs.
	ClientAddress  ClientAddress
	NotTransparent NotTransparent
}

// Listened reports whether anybody hears of what happens.
func (r *Registry) Listened() bool { return r.hub.listening() }

// DialFailed counts that a backend could not be reached by a flow that has no record, as Record.DialFailed does.
func (r *Registry) DialFailed(l *Load, why DialFailure) {
	r.failed(l, why)
	r.countDialFailure(l.key.service, l.key.backend, why)
}

// Past enters a flow that was over before anybody had heard of it: it counts as if it had been opened and finished, and nobody
// is told. ID and StartedAt must be set; Load is not counted, the flow is not there any more.
func (r *Registry) Past(s Spec, end End) {
	v := View{
		ID: s.ID, Mode: s.Mode, Protocol: s.Proto, Service: s.Service, Frontend: s.Frontend, Client: s.Client, Backend: s.Backend,
		Path: s.PathName, State: Ended, Picked: s.Picked, StartedAt: s.StartedAt, HandedOffAt: s.StartedAt,
		EndedAt: end.At, EndedBy: end.By, Reason: end.Reason, ClientAddress: end.ClientAddress, NotTransparent: end.NotTransparent,
		LastSeenAt: s.Counters.LastSeen, BytesToBackend: s.Counters.BytesToBackend, BytesToClient: s.Counters.BytesToClient,
		PacketsToBackend: s.Counters.PacketsToBackend, PacketsToClient: s.Counters.PacketsToClient,
	}
	sh := r.shard(s.ID)
	sh.mu.Lock()
	sh.bytes[BytesKey{v.Service, ToBackend, v.Path}] += v.BytesToBackend
	sh.bytes[BytesKey{v.Service, ToClient, v.Path}] += v.BytesToClient
	sh.total[EndedKey{v.Service, v.Protocol, v.Path, v.EndedBy, v.Reason}]++
	sh.mu.Unlock()
	if s.Load != nil {
		s.Load.streak.answered()
	}
	r.ended.add(v)
	if r.onEnded != nil {
		r.onEnded(&v)
	}
}
