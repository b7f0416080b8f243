package cache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func newCache(t *testing.T) *Cache {
	t.Helper()
	c, err := Open(filepath.Join(t.TempDir(), "cache"), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// write is a fill that leaves one file.
func write(content string) func(string) error {
	return func(dir string) error { return os.WriteFile(filepath.Join(dir, "file"), []byte(content), 0o644) }
}

func mustGet(t *testing.T, c *Cache, key string, fill func(string) error) *Entry {
	t.Helper()
	e, err := c.Get(key, fill)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func (e *Entry) content(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(e.Dir, "file"))
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// An entry is made once, and again only if it is not what it was.
func TestCacheHeals(t *testing.T) {
	for _, tc := range []struct {
		name string
		hurt func(dir string) error
		want string
	}{
		{"whole", func(string) error { return nil }, "first"},
		{"content", func(d string) error { return os.WriteFile(filepath.Join(d, "file"), []byte("f1rst"), 0o644) }, "second"},
		{"cut", func(d string) error { return os.Truncate(filepath.Join(d, "file"), 2) }, "second"},
		{"file gone", func(d string) error { return os.Remove(filepath.Join(d, "file")) }, "second"},
		{"manifest gone", func(d string) error { return os.Remove(filepath.Join(d, manifestFile)) }, "second"},
		{"manifest cut", func(d string) error { return os.Truncate(filepath.Join(d, manifestFile), 5) }, "second"},
		{"empty", func(d string) error { return errors.Join(os.RemoveAll(d), os.Mkdir(d, 0o755)) }, "second"},
		{"a file in its place", func(d string) error { return errors.Join(os.RemoveAll(d), os.WriteFile(d, nil, 0o644)) }, "second"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCache(t)
			e := mustGet(t, c, "key", write("first"))
			_ = e.Close()
			if err := tc.hurt(e.Dir); err != nil {
				t.Fatal(err)
			}
			if got := mustGet(t, c, "key", write("second")).content(t); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// What fails leaves nothing that could be taken for an entry, nor does what is killed.
func TestCacheKeepsNoHalves(t *testing.T) {
	c := newCache(t)
	broken := errors.New("broken")
	_, err := c.Get("key", func(dir string) error { return errors.Join(write("half")(dir), broken) })
	if !errors.Is(err, broken) {
		t.Fatalf("got %v, want %v", err, broken)
	}
	if err := os.MkdirAll(filepath.Join(c.dir, makingPrefix+"1", "entry"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := mustGet(t, c, "key", write("whole")).content(t); got != "whole" {
		t.Errorf("got %q", got)
	}
	left, err := os.ReadDir(c.dir)
	if err != nil || len(left) != 2 { // the entry and the lock
		t.Errorf("the cache has %v, %v", left, err)
	}
}

// Two who want the same at once get the same, made once.
func TestCacheAtOnce(t *testing.T) {
	c := newCache(t)
	var fills atomic.Int32
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			own, err := Open(c.dir, "") // as another process would
			if err != nil {
				t.Error(err)
				return
			}
			key := fmt.Sprint("key", i%2)
			e, err := own.Get(key, func(dir string) error { fills.Add(1); return write(key)(dir) })
			if err != nil {
				t.Error(err)
				return
			}
			defer e.Close()
			if got := e.content(t); got != key {
				t.Errorf("got %q, want %q", got, key)
			}
		})
	}
	all.Wait()
	if n := fills.Load(); n != 2 {
		t.Errorf("filled %d times, want twice", n)
	}
}

// The cache stays small: what was used longest ago goes, unless it is in use.
func TestCacheIsBounded(t *testing.T) {
	c := newCache(t)
	c.max = 350
	big := write(strings.Repeat("x", 100))
	for i, key := range []string{"in-use", "oldest", "older", "new"} {
		e := mustGet(t, c, key, big)
		if key != "in-use" {
			_ = e.Close()
		}
		at := time.Now().Add(time.Duration(i-10) * time.Minute)
		if err := os.Chtimes(e.Dir, at, at); err != nil {
			t.Fatal(err)
		}
	}
	mustGet(t, c, "newest", big)
	for key, want := range map[string]bool{"in-use": true, "oldest": false, "older": false, "newest": true} {
		if _, err := os.Stat(filepath.Join(c.dir, key)); (err == nil) != want {
			t.Errorf("entry %s: %v; want it there: %v", key, err, want)
		}
	}
}
