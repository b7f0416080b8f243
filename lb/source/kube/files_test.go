package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/baton-lb/baton/lb/store"
)

// dump is a source of files with a store.
type dump struct {
	t       *testing.T
	path    string
	store   *store.Store
	source  *Source
	log     syncBuffer
	applied chan struct{}
}

// newDump follows a file, or a directory if path names one.
func newDump(t *testing.T, path string) *dump {
	t.Helper()
	d := &dump{t: t, path: path, store: store.New(store.Options{}), applied: make(chan struct{}, 10)}
	var err error
	d.source, err = NewFiles(SourceOptions{
		Store: d.store, Node: "a", Log: slog.New(slog.NewTextHandler(&d.log, nil)), Applied: func() { d.applied <- struct{}{} },
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = d.store.Run(ctx) })
	running.Go(func() { d.source.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	eventually(t, "it has synced", func() error {
		if !isClosed(d.source.Synced()) {
			return errors.New("not yet")
		}
		return nil
	})
	return d
}

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (d *dump) serves(service, want string) {
	d.t.Helper()
	eventually(d.t, service+" is served by "+want, func() error {
		if got := backendsOf(d.store, service); got != want {
			return fmt.Errorf("by %s; it logged\n%s", got, &d.log)
		}
		return nil
	})
}

func (d *dump) logs(words ...string) {
	d.t.Helper()
	eventually(d.t, fmt.Sprintf("a line of the log has %q", words), func() error {
		for line := range strings.Lines(d.log.String()) {
			has := true
			for _, w := range words {
				has = has && strings.Contains(line, w)
			}
			if has {
				return nil
			}
		}
		return errors.New(d.log.String())
	})
}

// write replaces a file as an editor does.
func write(t *testing.T, path, text string) {
	t.Helper()
	err := os.WriteFile(path+".new", []byte(text), 0o644)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func webYAML(backend string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: "", port: 8080, protocol: TCP}]
endpoints: [{addresses: [%s]}]
`, backend)
}

func TestFileIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "objects.yaml")
	write(t, path, webYAML("10.244.1.2"))
	d := newDump(t, path)
	d.serves("default/web", "10.244.1.2:8080")
	write(t, path, webYAML("10.244.1.3"))
	d.serves("default/web", "10.244.1.3:8080")
	if err := os.WriteFile(path, []byte(webYAML("10.244.1.4")), 0o644); err != nil { // in place
		t.Fatal(err)
	}
	d.serves("default/web", "10.244.1.4:8080")

	write(t, path, "kind: [")
	d.logs("cannot be read", path, "not YAML", "stays in force")
	if got := backendsOf(d.store, "default/web"); got != "10.244.1.4:8080" {
		t.Errorf("a broken file changed it to %s", got)
	}
	if n := d.source.Status().Faults[kindFile]; n != 1 {
		t.Errorf("%d faulty files", n)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	d.logs("cannot be read", path, "no such file")
	if got := backendsOf(d.store, "default/web"); got != "10.244.1.4:8080" {
		t.Errorf("a missing file changed it to %s", got)
	}
	write(t, path, webYAML("10.244.1.5"))
	d.serves("default/web", "10.244.1.5:8080")
	d.logs("can be read again", path)

	d.source.Reload()
	<-d.applied
}

func TestDirectoryIsFollowed(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), webYAML("10.244.1.2"))
	write(t, filepath.Join(dir, "notes.txt"), "kind: [")
	write(t, filepath.Join(dir, ".hidden.yaml"), "kind: [")
	d := newDump(t, dir)
	d.serves("default/web", "10.244.1.2:8080")

	second := filepath.Join(dir, "b.json")
	write(t, second, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"api"},"spec":{"clusterIP":"10.96.0.11","ports":[{"port":80}]}}`)
	d.serves("default/api", "")
	write(t, filepath.Join(dir, "c.yaml"), webYAML("10.244.9.9"))
	d.logs("object is faulty", "Service default/web", "is in "+filepath.Join(dir, "a.yaml")+" already", filepath.Join(dir, "c.yaml"))
	if got := backendsOf(d.store, "default/web"); got != "10.244.1.2:8080" {
		t.Errorf("the second file won: %s", got)
	}
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	d.serves("default/web", "10.244.9.9:8080")
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	d.serves("default/api", "absent")
	if f := d.source.Status().Faults; f[kindService]+f[kindSlice]+f[kindFile] != 0 {
		t.Errorf("faults are left: %v", f)
	}
}

// A directory that is mounted from a ConfigMap: everything is a link, and one of them
// is swapped.
func TestMountedDirectoryIsFollowed(t *testing.T) {
	dir := t.TempDir()
	version := func(n int, text string) {
		v := filepath.Join(dir, fmt.Sprintf("..v%d", n))
		if err := os.Mkdir(v, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(v, "a.yaml"), text)
		err := os.Symlink(filepath.Base(v), filepath.Join(dir, "..tmp"))
		if err == nil {
			err = os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	version(1, webYAML("10.244.1.2"))
	if err := os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	d := newDump(t, dir)
	d.serves("default/web", "10.244.1.2:8080")
	version(2, webYAML("10.244.1.3"))
	d.serves("default/web", "10.244.1.3:8080")
}

// The node's own object gives its zone and its endpoints; those of others mean
// nothing.
func TestFileWithNodes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "objects.yaml")
	write(t, path, webYAML("10.244.1.2")+`---
apiVersion: v1
kind: NodeList
items:
- {metadata: {name: b, labels: {topology.kubernetes.io/zone: z2}}}
- {metadata: {name: a, labels: {topology.kubernetes.io/zone: z1}}, spec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]}}
`)
	d := newDump(t, path)
	if st := d.source.Status(); st.Objects[kindNode] != 1 || !st.Leaving {
		t.Errorf("%+v", st)
	}
}

func TestNoFile(t *testing.T) {
	_, err := NewFiles(SourceOptions{Store: store.New(store.Options{})}, filepath.Join(t.TempDir(), "none"))
	if err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v", err)
	}
}
