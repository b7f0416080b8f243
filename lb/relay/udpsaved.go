package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/store"
)

// savedFile is where UDP sessions are kept over a restart, in the state directory.
// The time of its last change is when its sessions were last known to be alive.
const savedFile = "udp-sessions.json"

// SavedFile is the name of the file in the state directory that a Relay leaves there
// for the next one.
const SavedFile = savedFile

// saveEvery is how old the file may be when the process is killed.
const saveEvery = 5 * time.Second

// keepSaved is how long clients have to come back at most.
const keepSaved = time.Hour

// savedSession is what is kept of a session.
type savedSession struct {
	ID        flow.ID        `json:"id"`
	StartedAt time.Time      `json:"startedAt"`
	Peer      netip.AddrPort `json:"peer"`
	Client    netip.AddrPort `json:"client,omitzero"` // behind a proxy
	Frontend  netip.AddrPort `json:"frontend"`        // as the peer's datagrams name it
	Backend   netip.AddrPort `json:"backend"`
	Source    netip.AddrPort `json:"source"`        // of the socket to the backend
	Seen      time.Time      `json:"seen,omitzero"` // when it was last alive, if its client has not come back since an earlier restart

	savedCounters // what it had carried when the file was written: exact after a stop

	Carried bool           `json:"carried,omitempty"` // the kernel carried it, and may do so still
	Own     *savedCounters `json:"own,omitempty"`     // then: what that carrier has no part in
}

// savedCounters are flow.Counters without a time.
type savedCounters struct {
	BytesToBackend   uint64 `json:"bytesToBackend"`
	BytesToClient    uint64 `json:"bytesToClient"`
	PacketsToBackend uint64 `json:"packetsToBackend"`
	PacketsToClient  uint64 `json:"packetsToClient"`
}

func saveCounters(c flow.Counters) savedCounters {
	return savedCounters{c.BytesToBackend, c.BytesToClient, c.PacketsToBackend, c.PacketsToClient}
}

func (c *savedCounters) counters() flow.Counters {
	return flow.Counters{
		BytesToBackend: c.BytesToBackend, BytesToClient: c.BytesToClient,
		PacketsToBackend: c.PacketsToBackend, PacketsToClient: c.PacketsToClient,
	}
}

// raise makes each of the counters that of o where it is more.
func (c *savedCounters) raise(o *savedCounters) {
	c.BytesToBackend = max(c.BytesToBackend, o.BytesToBackend)
	c.BytesToClient = max(c.BytesToClient, o.BytesToClient)
	c.PacketsToBackend = max(c.PacketsToBackend, o.PacketsToBackend)
	c.PacketsToClient = max(c.PacketsToClient, o.PacketsToClient)
}

// own is what no carrier of now has a part in.
func (e *savedSession) own() *savedCounters {
	if e.Own != nil {
		return e.Own
	}
	return &e.savedCounters
}

func (e *savedSession) key() udpKey {
	c := udpClient{peer: e.Peer, local: e.Frontend, client: e.Client, proxied: e.Client.IsValid()}
	return c.key()
}

// spec begins the record of a client's session anew, or of one that was kept.
func (e *savedSession) spec(fe *store.Frontend, c *udpClient) flow.Spec {
	return flow.Spec{
		Proto: flow.UDP, Service: fe.Service.Name, Frontend: c.asked, Client: c.client,
		ID: e.ID, StartedAt: e.StartedAt, Counters: e.counters(),
	}
}

// valid reports whether it can have been a session.
func (e *savedSession) valid() bool {
	return e.ID != 0 && e.Peer.IsValid() && e.Frontend.IsValid() && e.Backend.IsValid()
}

// savedSessions are those of an earlier process that have not come back yet, and
// the file for the next one.
type savedSessions struct {
	file    sync.Mutex // held while the file is written; guards what follows
	written uint64     // Relay.udpChanges then
	final   bool
	live    []liveSession // empty; only its room is kept

	mu sync.Mutex // after file; guards what follows
	m  map[udpKey]savedSession
}

// load reads the file, and says how many sessions are in it. One that cannot be
// read costs the sessions in it, no more.
func (s *savedSessions) load(stateDir string) (n int, err error) {
	path := filepath.Join(stateDir, savedFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || stateDir == "" {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the UDP sessions kept over a restart: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("read the UDP sessions kept over a restart: %w", err)
	}
	m, err := decodeSaved(b, info.ModTime())
	if err != nil {
		return 0, fmt.Errorf("read the UDP sessions kept over a restart in %s: %w", savedFile, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m = m
	return len(m), nil
}

// decodeSaved reads the file, without what cannot be a session.
func decodeSaved(b []byte, written time.Time) (map[udpKey]savedSession, error) {
	var list []savedSession
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	m := make(map[udpKey]savedSession, len(list))
	for _, e := range list {
		if !e.valid() {
			continue
		}
		if e.Seen.IsZero() {
			e.Seen = written
		}
		m[e.key()] = e
	}
	return m, nil
}

// reopen makes the file be written again after a last time that was none.
func (s *savedSessions) reopen() {
	s.file.Lock()
	defer s.file.Unlock()
	s.final = false
}

// take removes a session. It reports false, with nothing, when there is none that
// was alive within life.
func (s *savedSessions) take(k udpKey, now time.Time, life time.Duration) (savedSession, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.m[k]
	delete(s.m, k)
	if !ok || now.Sub(e.Seen) >= life {
		return savedSession{}, false
	}
	return e, true
}

// add keeps a session that this process cannot go on with as it is, and what its
// carrier has carried beside what e says. What the file says of it stands, where
// that is more.
func (s *savedSessions) add(e savedSession, beside flow.Counters) {
	if e.Seen = beside.LastSeen; e.Seen.IsZero() {
		e.Seen = time.Now()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if file, ok := s.m[e.key()]; ok && file.ID == e.ID {
		e.raise(file.own())
	}
	e.savedCounters = saveCounters(e.counters().Add(beside))
	if s.m == nil {
		s.m = make(map[udpKey]savedSession)
	}
	s.m[e.key()] = e
}

// pending lists those that nobody has come back for, and forgets the old ones.
func (s *savedSessions) pending(now time.Time) (list []savedSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, e := range s.m {
		if now.Sub(e.Seen) > keepSaved {
			delete(s.m, k)
			continue
		}
		list = append(list, e)
	}
	return list
}

// saveSessions writes the file when sessions have come, moved or gone, aside and
// then renamed; else it only says in it that they are alive. The last one before
// the sessions end on purpose is final.
func (r *Relay) saveSessions(final bool) error {
	f := &r.saved
	f.file.Lock()
	defer f.file.Unlock()
	changes := r.udpChanges.Load()
	if r.stateDir == "" || f.final || changes == 0 {
		return nil
	}
	path, now := filepath.Join(r.stateDir, savedFile), time.Now()
	if changes == f.written && !final && os.Chtimes(path, now, now) == nil {
		return nil
	}
	f.written, f.final = changes, final
	for _, w := range r.workers {
		_ = w.loop.Call(func() { f.live = w.udp.appendTo(f.live) })
	}
	list := f.pending(now)
	for i := range f.live {
		list = append(list, f.live[i].save())
	}
	clear(f.live)
	f.live = f.live[:0]
	b, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("keep the UDP sessions: %w", err)
	}
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return fmt.Errorf("keep the UDP sessions: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("keep the UDP sessions: %w", err)
	}
	return nil
}

// liveSession is a session with what changes in it.
type liveSession struct {
	*udpSession
	backend, source netip.AddrPort
	before          flow.Counters // what neither its socket nor its carrier of now has carried
	way             *udpPath      // nil = there is none
}

// now is the session as it is. It runs on its loop.
func (s *udpSession) now() liveSession {
	return liveSession{s, s.backend.Address, s.source, s.carrying.before, s.carrying.way}
}

// appendTo lists the sessions of a worker. It holds the loop: it makes no system
// calls, and leaves what can be read elsewhere to others.
func (u *udpWorker) appendTo(list []liveSession) []liveSession {
	for _, socket := range u.sockets {
		for _, s := range socket.sessions {
			list = append(list, s.now())
		}
	}
	return list
}

func (s *liveSession) save() savedSession {
	c := s.before.Add(s.Counters())
	e := savedSession{
		ID: s.rec.ID(), StartedAt: s.rec.StartedAt(), Peer: s.peer, Frontend: s.local, Backend: s.backend, Source: s.source,
		savedCounters: saveCounters(c),
	}
	if s.way != nil {
		own := e.savedCounters
		e.Carried, e.Own = true, &own
		e.savedCounters = saveCounters(c.Add(s.way.beside()))
	}
	if s.proxied {
		e.Client = s.client
	}
	return e
}

// keepSaving saves now and then.
func (r *Relay) keepSaving() {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.watching.Done():
			return
		case <-tick.C:
		}
		if err := r.saveSessions(false); err != nil {
			r.log.Warn("UDP sessions would not survive a crash", "err", err)
		}
	}
}
