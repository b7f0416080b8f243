package steer

import (
	"slices"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/steer/program"
)

// Where limits.udpSessions is near, old sessions make room, so that a new one is not refused: the program knows how many there are, and not who
// is old, and lets a service have some more for the moment. Those of which the client has sent one datagram only go while there still are places; others when there are hardly any.

const (
	roomForOneShot = 4  // one place in so many is kept free by sessions with one datagram
	roomForAll     = 16 // and one in so many by all
	roomAtOnce     = 512
)

// hardSessions is how many sessions the program lets a service have at a moment, until some have made room.
func hardSessions(limit int) uint32 {
	if limit == 0 {
		return 0
	}
	return uint32(limit + max(limit/roomForOneShot, 64))
}

// makeRoom ends sessions of a service that has many.
func (v *service) makeRoom() {
	limit := v.now.sessions
	if limit == 0 {
		return
	}
	n := v.s.o.Program.Sessions(v.id)
	most := limit - limit/roomForOneShot
	if n <= most {
		return
	}
	pressed := n > limit-limit/roomForAll
	var (
		due   []program.Flow
		paths []*path
	)
	for _, p := range v.s.flows.oldest(v.id, min(n-most, roomAtOnce)) {
		f, ok := v.s.o.Program.Lookup(p.ref)
		switch {
		case !ok:
		case f.Counters.PacketsToBackend <= 1 || pressed:
			due, paths = append(due, f), append(paths, p)
		default:
			v.s.flows.queue(p)
		}
	}
	if _, err := v.s.o.Program.Delete(due, true); err != nil {
		v.s.log.Warn("make room for sessions", "service", v.now.service.Name, "err", err)
	}
	for i, p := range paths {
		p.finish(due[i], true, flow.ByBaton, flow.ReasonEvicted)
	}
}

// queue has a session be the youngest of its service.
func (f *flows) queue(p *path) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sessions[p.service] = append(f.sessions[p.service], p)
}

// oldest takes out so many sessions of a service, the oldest first.
func (f *flows) oldest(id program.ServiceID, n int) (list []*path) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.sessions[id]
	for len(all) > 0 && len(list) < n {
		if f.open[all[0].ref] == all[0] {
			list = append(list, all[0])
		}
		all[0] = nil
		all = all[1:]
	}
	f.sessions[id] = all
	return list
}

// tidySessions forgets those that have ended.
func (f *flows) tidySessions() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, all := range f.sessions {
		if all = slices.DeleteFunc(all, func(p *path) bool { return f.open[p.ref] != p }); len(all) == 0 {
			delete(f.sessions, id)
		} else {
			f.sessions[id] = all
		}
	}
}
