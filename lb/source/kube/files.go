package kube

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// files feeds a source from a file of objects, or a directory of such files.
type files struct {
	path string
	node string
	log  *slog.Logger
	ask  chan struct{} // has one when everything is to be read now

	// Of the goroutine that feeds.
	read  map[string]*readFile // by path
	known map[Object]any       // what the queue was told of each: *Service, *Slice, *Node

	mu     sync.Mutex        // guards what follows
	origin map[Object]string // in which file an object is
}

// readFile is a file as it was read last.
type readFile struct {
	sum     [sha256.Size]byte
	objects []readObject
	faults  []Fault
}

// readObject is one object of a file, as it is wanted.
type readObject struct {
	name  Object
	value any // *Service, *Slice, *Node; nil of its kind for one that is not for us
}

// NewFiles makes a source that follows a file of objects, as "kubectl get -o yaml"
// writes them, or all files of a directory. The error is of a path that cannot be
// read at all.
func NewFiles(o SourceOptions, path string) (*Source, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &files{
		path: path, node: o.Node, log: o.Log, ask: make(chan struct{}, 1),
		read: make(map[string]*readFile), known: make(map[Object]any), origin: make(map[Object]string),
	}
	if _, err := f.list(); err != nil {
		return nil, err
	}
	return newSource(o, f, nil), nil
}

func (f *files) stale() time.Duration { return 0 }

func (f *files) reload(*Source) {
	select {
	case f.ask <- struct{}{}:
	default: // one is waiting already
	}
}

func (f *files) where(o Object) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.origin[o]
}

// feed reads the files, and again when they change, until ctx ends.
func (f *files) feed(ctx context.Context, s *Source) {
	w := newDirWatcher(f.path, f.log)
	defer w.close()
	f.load(s, false)
	s.queue.complete()
	for {
		asked, ok := w.wait(ctx, f.ask)
		if !ok {
			return
		}
		f.load(s, asked)
	}
}

// list names the files, sorted. Of a directory these are the ones called like YAML or
// JSON, and none that is hidden.
func (f *files) list() ([]string, error) {
	fi, err := os.Stat(f.path)
	if err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	if !fi.IsDir() {
		return []string{f.path}, nil
	}
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	var list []string
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			list = append(list, filepath.Join(f.path, name))
		}
	}
	return list, nil
}

// load reads what has changed and tells the queue.
func (f *files) load(s *Source, asked bool) {
	faults := make(map[string][]Fault)
	now, origin := f.merge(f.readAll(faults), faults)
	f.mu.Lock()
	f.origin = origin
	f.mu.Unlock()
	f.tell(s, now, faults, asked)
}

// readAll reads what has changed, notes by file what is wrong, and lists the files.
// What cannot be read stays as it was: half of a file is none.
func (f *files) readAll(faults map[string][]Fault) []string {
	list, err := f.list()
	if err != nil {
		faults[f.path] = []Fault{fileFault(f.path, err)}
		return slices.Sorted(maps.Keys(f.read))
	}
	faults[f.path] = nil
	f.forget(list, faults)
	for _, path := range list {
		f.readOne(path, faults)
	}
	return list
}

// forget forgets files that have gone.
func (f *files) forget(list []string, faults map[string][]Fault) {
	for path := range f.read {
		if !slices.Contains(list, path) {
			delete(f.read, path)
			faults[path] = nil
		}
	}
}

// readOne reads one file, unless it is as it was.
func (f *files) readOne(path string, faults map[string][]Fault) {
	before := f.read[path]
	text, err := os.ReadFile(path)
	if err == nil && before != nil && sha256.Sum256(text) == before.sum {
		faults[path] = before.faults
		return
	}
	var m *manifest
	if err == nil {
		m, err = parseManifest(path, text)
	}
	if err != nil {
		faults[path] = []Fault{fileFault(path, err)}
		if before == nil {
			f.read[path] = &readFile{}
		}
		f.read[path].sum = [sha256.Size]byte{} // it is looked at again
		return
	}
	now := &readFile{sum: sha256.Sum256(text), objects: f.objects(m), faults: m.faults}
	f.read[path], faults[path] = now, m.faults
	f.log.Info("objects read", "file", path, "services", len(m.services), "slices", len(m.slices), "faulty", len(m.faults))
}

// objects strips the objects of a file.
func (f *files) objects(m *manifest) (list []readObject) {
	add := func(kind string, o *metav1.ObjectMeta, value any) {
		list = append(list, readObject{Object{kind, o.Namespace, o.Name}, value})
	}
	for _, from := range m.services {
		from.Namespace = namespaceOf(kindService, from.Namespace)
		svc, _ := ReadService(from) // the Translator knows what is wrong with it
		add(kindService, &from.ObjectMeta, svc)
	}
	for _, from := range m.slices {
		from.Namespace = namespaceOf(kindSlice, from.Namespace)
		slice, _ := ReadSlice(from)
		add(kindSlice, &from.ObjectMeta, slice)
	}
	for _, from := range m.nodes {
		if from.Name == f.node {
			add(kindNode, &from.ObjectMeta, ownNode{ReadNode(from), isLeaving(from)})
		}
	}
	return list
}

// ownNode is this node as a file has it.
type ownNode struct {
	*Node
	leaving bool
}

// fileFault is the fault of a file that cannot be read.
func fileFault(path string, err error) Fault {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return Fault{Kind: kindFile, Name: path, Problem: err.Error()}
}
