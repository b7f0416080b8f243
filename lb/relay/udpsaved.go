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

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
)

// savedFile is where UDP sessions are kept over a restart, in the state directory.
const savedFile = "udp-sessions.json"

// saveEvery is how old the file may be when the process is killed.
const saveEvery = 5 * time.Second

// savedSession is what is kept of a session.
type savedSession struct {
	Client   netip.AddrPort `json:"client"`
	Frontend netip.AddrPort `json:"frontend"` // as the client's datagrams name it
	Backend  netip.AddrPort `json:"backend"`
	Local    netip.AddrPort `json:"local"` // of the socket to the backend
}

// savedSessions are those of an earlier process that have not come back yet.
type savedSessions struct {
	mu    sync.Mutex // guards what follows
	m     map[flow.Key]savedSession
	since time.Time
}

// load reads the file. One that cannot be read costs the sessions in it, no more.
func (s *savedSessions) load(stateDir string, now time.Time) error {
	b, err := os.ReadFile(filepath.Join(stateDir, savedFile))
	if errors.Is(err, fs.ErrNotExist) || stateDir == "" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the UDP sessions kept over a restart: %w", err)
	}
	var list []savedSession
	if err := json.Unmarshal(b, &list); err != nil {
		return fmt.Errorf("read the UDP sessions kept over a restart in %s: %w", savedFile, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since, s.m = now, make(map[flow.Key]savedSession, len(list))
	for _, e := range list {
		s.m[flow.NewKey(flow.UDP, e.Client, e.Frontend)] = e
	}
	return nil
}

// take removes a session that is not older than life.
func (s *savedSessions) take(k flow.Key, now time.Time, life time.Duration) (savedSession, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		return savedSession{}, false
	}
	e, ok := s.m[k]
	delete(s.m, k)
	return e, ok && now.Sub(s.since) < life
}

// keepSaved is how long clients have to come back at most.
const keepSaved = 10 * time.Minute

// forget drops what nobody has come back for.
func (s *savedSessions) forget(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.since) > keepSaved {
		s.m = nil
	}
}

// saveSessions writes the file anew, aside and then renamed.
func (r *Relay) saveSessions() error {
	if r.stateDir == "" {
		return nil
	}
	list := []savedSession{}
	for _, w := range r.workers {
		_ = w.loop.Call(func() { list = w.udp.save(list) })
	}
	b, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("keep the UDP sessions: %w", err)
	}
	path := filepath.Join(r.stateDir, savedFile)
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return fmt.Errorf("keep the UDP sessions: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("keep the UDP sessions: %w", err)
	}
	return nil
}

// save lists the sessions of a worker, but for those behind a proxy: what makes
// them two is in the header only.
func (u *udpWorker) save(list []savedSession) []savedSession {
	for _, s := range u.sessions {
		if s.proxied {
			continue
		}
		sa, err := unix.Getsockname(s.fd)
		if err != nil {
			continue
		}
		list = append(list, savedSession{Client: s.peer, Frontend: s.local, Backend: s.backend.Address, Local: addrPort(sa)})
	}
	return list
}

// keepSaving writes the file now and then, when sessions have come or gone.
func (r *Relay) keepSaving() {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	var saved uint64
	for {
		select {
		case <-r.watching.Done():
			return
		case now := <-tick.C:
			r.saved.forget(now)
		}
		if n := r.udpChanges.Load(); n != saved {
			saved = n
			if err := r.saveSessions(); err != nil {
				r.log.Warn("UDP sessions would not survive a crash", "err", err)
			}
		}
	}
}
