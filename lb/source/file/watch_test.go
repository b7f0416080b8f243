package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	patience = 10 * time.Second       // for what must come
	silence  = 150 * time.Millisecond // in which what must not come would have come
)

// heard is one call of onChange.
type heard struct {
	cfg *Config
	err error
}

// watched runs a Watcher on a path until the test ends.
type watched struct {
	*Watcher
	t     *testing.T
	calls chan heard
}

func watch(t *testing.T, path string, known *Config, o WatchOptions) *watched {
	t.Helper()
	if o.Settle == 0 {
		o.Settle = 5 * time.Millisecond
	}
	if o.Recheck == 0 {
		o.Recheck = time.Hour
	}
	w := &watched{NewWatcher(path, known, o), t, make(chan heard, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx, func(c *Config, err error) { w.calls <- heard{c, err} })
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func (w *watched) next() heard {
	w.t.Helper()
	select {
	case h := <-w.calls:
		return h
	case <-time.After(patience):
		w.t.Fatal("nothing was heard")
		return heard{}
	}
}

// wantZone awaits a good file with that zone.
func (w *watched) wantZone(zone string) {
	w.t.Helper()
	if h := w.next(); h.err != nil || h.cfg.Zone != zone {
		w.t.Fatalf("heard %+v, %v; want zone %s", h.cfg, h.err, zone)
	}
}

// wantFault awaits a refusal that says so.
func (w *watched) wantFault(part string) {
	w.t.Helper()
	if h := w.next(); h.err == nil || !strings.Contains(h.err.Error(), part) {
		w.t.Fatalf("heard %+v, %v; want %q", h.cfg, h.err, part)
	}
}

func (w *watched) wantNothing() {
	w.t.Helper()
	select {
	case h := <-w.calls:
		w.t.Fatalf("heard %+v, %v; want nothing", h.cfg, h.err)
	case <-time.After(silence):
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace writes beside the file and renames, as editors do.
func replace(t *testing.T, path, content string) {
	t.Helper()
	write(t, path+".new", content)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func zone(z string) string { return "zone: " + z + "\n" }

func TestWatchRename(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baton.yaml")
	write(t, path, zone("a"))
	w := watch(t, path, nil, WatchOptions{})
	w.wantZone("a")
	for _, z := range []string{"b", "c", "d"} {
		replace(t, path, zone(z))
		w.wantZone(z)
	}
	replace(t, path, zone("d")) // another file, the same content
	w.wantNothing()
}

func TestWatchInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baton.yaml")
	write(t, path, zone("a"))
	w := watch(t, path, nil, WatchOptions{})
	w.wantZone("a")
	write(t, path, zone("b")) // of the same size
	w.wantZone("b")
	write(t, path, zone("b"))
	w.wantNothing()
}

func TestWatchTruncated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baton.yaml")
	write(t, path, zone("a"))
	w := watch(t, path, nil, WatchOptions{})
	w.wantZone("a")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	w.wantFault("the file is empty")
	write(t, path, zone("a"))
	w.wantZone("a")
}

// A file that is written bit by bit is read when the writer has come to rest.
func TestWatchSlowWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baton.yaml")
	write(t, path, zone("a"))
	w := watch(t, path, nil, WatchOptions{Settle: 200 * time.Millisecond})
	w.wantZone("a")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, part := range []string{"zone: b\n", "services:\n", "- name: web\n", "  frontends: [\"tcp://10.0.0.1:80\"]\n"} {
		if _, err := f.WriteString(part); err != nil {
			t.Fatal(err)
		}
	}
	if h := w.next(); h.err != nil || len(h.cfg.Services) != 1 {
		t.Fatalf("heard %+v, %v; want the whole file", h.cfg, h.err)
	}
	w.wantNothing()
}

func TestWatchBadThenGood(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baton.yaml")
	write(t, path, zone("a"))
	w := watch(t, path, nil, WatchOptions{})
	w.wantZone("a")
	replace(t, path, "zone: [\n")
	w.wantFault("baton.yaml:1: not YAML")
	replace(t, path, "zone: 7\n")
	w.wantFault("baton.yaml:1: zone: is a number")
	replace(t, path, "zone: 7\n")
	w.wantNothing()
	replace(t, path, zone("a")) // good again, though nothing is new since the last good one
	w.wantZone("a")
}

func TestWatchVanishes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baton.yaml")
	write(t, path, zone("a"))
	w := watch(t, path, nil, WatchOptions{})
	w.wantZone("a")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if h := w.next(); !errors.Is(h.err, fs.ErrNotExist) {
		t.Fatalf("heard %+v, %v", h.cfg, h.err)
	}
	write(t, path+".other", "x")
	w.wantNothing() // it is still gone: said once
	write(t, path, zone("a"))
	w.wantZone("a")
}

// Kubernetes: baton.yaml -> ..data/baton.yaml, and ..data is swapped by rename.
func TestWatchConfigMap(t *testing.T) {
	dir := t.TempDir()
	mount := func(version, content string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "baton.yaml"), content)
		link(t, version, filepath.Join(dir, "..data_tmp"))
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "baton.yaml")
	mount("..1", zone("a"))
	link(t, "..data/baton.yaml", path)
	w := watch(t, path, nil, WatchOptions{})
	w.wantZone("a")
	mount("..2", zone("b"))
	w.wantZone("b")
	if err := os.RemoveAll(filepath.Join(dir, "..1")); err != nil {
		t.Fatal(err)
	}
	mount("..3", zone("c"))
	w.wantZone("c")
}

func link(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
}

// A link to a file elsewhere: the file elsewhere is changed, then the link.
func TestWatchLink(t *testing.T) {
	here, there, third := t.TempDir(), t.TempDir(), t.TempDir()
	path := filepath.Join(here, "baton.yaml")
	write(t, filepath.Join(there, "real.yaml"), zone("a"))
	write(t, filepath.Join(third, "real.yaml"), zone("c"))
	link(t, filepath.Join(there, "real.yaml"), path)
	w := watch(t, path, nil, WatchOptions{})
	w.wantZone("a")
	write(t, filepath.Join(there, "real.yaml"), zone("b"))
	w.wantZone("b")
	link(t, filepath.Join(third, "real.yaml"), path+".new")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	w.wantZone("c")
	write(t, filepath.Join(third, "real.yaml"), zone("d"))
	w.wantZone("d")
}

// What inotify cannot tell of is found by looking: here the whole directory is
// another one.
func TestWatchRecheck(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc")
	path := filepath.Join(dir, "baton.yaml")
	fresh := func(content string) {
		t.Helper()
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, path, content)
	}
	fresh(zone("a"))
	w := watch(t, path, nil, WatchOptions{Recheck: 20 * time.Millisecond})
	w.wantZone("a")
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	w.wantFault("no such file")
	fresh(zone("b"))
	w.wantZone("b")
	replace(t, path, zone("c"))
	w.wantZone("c")
}

func TestWatchWithoutInotify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baton.yaml")
	write(t, path, zone("a"))
	w := watch(t, path, nil, WatchOptions{NoInotify: true, Recheck: 10 * time.Millisecond})
	w.wantZone("a")
	write(t, path, zone("b"))
	w.wantZone("b")
	replace(t, path, zone("c"))
	w.wantZone("c")
}

func TestWatchKnown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baton.yaml")
	write(t, path, zone("a"))
	known, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	w := watch(t, path, known, WatchOptions{})
	w.wantNothing()
	w.Reload()
	w.wantZone("a")

	replace(t, path, zone("b")) // between Load and Run
	watch(t, path, known, WatchOptions{}).wantZone("b")
}

// Reload has even the same fault reported again.
func TestWatchReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baton.yaml")
	w := watch(t, path, nil, WatchOptions{})
	w.wantFault("no such file")
	w.Reload()
	w.wantFault("no such file")
	write(t, path, "zone: 7\n")
	w.wantFault("is a number")
	w.Reload()
	w.wantFault("is a number")
}

func TestNotAFile(t *testing.T) {
	dir := t.TempDir()
	watch(t, dir, nil, WatchOptions{}).wantFault("not a regular file")
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("load a directory: %v", err)
	}
}
