package kube

import (
	"log/slog"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/baton-lb/baton/lb/store"
)

// standing is what is wrong with objects now. Each fault is told once, by the log
// and by an event, when it comes; the log says too when an object has none any more.
type standing struct {
	log    *slog.Logger
	events *events
	where  func(Object) string

	mu     sync.Mutex // guards what follows
	faults map[origin][]Fault
	failed map[store.Failure]bool // frontends that cannot be served; Err left out
	uids   map[types.NamespacedName]types.UID
}

// origin is who says that something is wrong, and with what.
type origin struct {
	by   foundBy
	what string
}

type foundBy string

const (
	byReading     foundBy = "reading"     // of a file
	byTranslation foundBy = "translation" // of an object
	byReserve     foundBy = "reserve"     // of the API server's addresses, by service
	byStore       foundBy = "store"       // which has refused a service
)

func newStanding(log *slog.Logger, e *events, where func(Object) string) *standing {
	return &standing{
		log: log, events: e, where: where, faults: make(map[origin][]Fault),
		failed: make(map[store.Failure]bool), uids: make(map[types.NamespacedName]types.UID),
	}
}

// know and forget keep what an event says of a Service: without its UID nobody who
// asks for the Service is shown it.
func (s *standing) know(k types.NamespacedName, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uids[k] = uid
}

func (s *standing) forget(k types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.uids, k)
}

// change takes what a batch has brought.
func (s *standing) change(files map[string][]Fault, c *Changes, reserved map[string]Fault, refused map[string]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for file, list := range files {
		s.setLocked(origin{byReading, file}, list)
	}
	byObject := make(map[Object][]Fault)
	for _, f := range c.Faults {
		byObject[f.Object()] = append(byObject[f.Object()], f)
	}
	for _, o := range c.Cleared {
		byObject[o] = nil
	}
	for o, list := range byObject {
		s.setLocked(origin{byTranslation, o.String()}, list)
	}
	for i := range c.Upsert {
		s.serviceLocked(c.Upsert[i].Name, reserved, refused)
	}
	for _, name := range c.Delete {
		s.serviceLocked(name, reserved, refused)
	}
}

func (s *standing) serviceLocked(name string, reserved map[string]Fault, refused map[string]error) {
	var list []Fault
	if f, ok := reserved[name]; ok {
		list = []Fault{f}
	}
	s.setLocked(origin{byReserve, name}, list)
	list = nil
	if err, ok := refused[name]; ok {
		list = []Fault{faultOf(name, err)}
	}
	s.setLocked(origin{byStore, name}, list)
}

// setLocked replaces what stands, and tells what is new and what has gone.
func (s *standing) setLocked(o origin, now []Fault) {
	before := s.faults[o]
	if len(before) == 0 && len(now) == 0 {
		return
	}
	for _, f := range now {
		if !slices.Contains(before, f) {
			s.tellLocked(f)
		}
	}
	if len(now) == 0 {
		delete(s.faults, o)
		if f := before[0]; f.Kind == kindFile {
			s.log.Info("objects can be read again", "file", f.Name)
		} else {
			s.log.Info("object is no longer faulty", "object", objectText(f))
		}
		return
	}
	s.faults[o] = now
}

func (s *standing) tellLocked(f Fault) {
	if f.Kind == kindFile {
		s.log.Warn("objects cannot be read: what the file said before stays in force", "file", f.Name, "err", f.Problem)
		return
	}
	args := []any{"object", objectText(f)}
	if file := s.where(f.Object()); file != "" {
		args = append(args, "file", file)
	}
	if f.Field != "" {
		args = append(args, "field", f.Field)
	}
	s.log.Warn("object is faulty: what it says otherwise is served", append(args, "err", f.Problem)...)
	s.events.fault(f, s.uidLocked(f.Service))
}

func (s *standing) uidLocked(service string) types.UID { return s.uids[objectOf(service)] }

func objectText(f Fault) string {
	if f.Namespace == "" {
		return f.Kind + " " + f.Name
	}
	return f.Object().String()
}

// failures reports frontends that cannot be served. The store logs them itself, and
// tries them again.
func (s *standing) failures(from *store.Store, r store.Round) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Failing == 0 && len(s.failed) == 0 {
		return
	}
	now := make(map[store.Failure]bool)
	for _, f := range from.Failures() {
		key := store.Failure{Service: f.Service, Frontend: f.Frontend}
		if now[key] = true; !s.failed[key] {
			s.events.failure(f, s.uidLocked(f.Service))
		}
	}
	s.failed = now
}

// count is how many faults stand, by kind of object; kinds without any are 0.
func (s *standing) count() map[string]int {
	n := map[string]int{kindService: 0, kindSlice: 0}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range s.faults {
		for _, f := range list {
			n[f.Kind]++
		}
	}
	return n
}
