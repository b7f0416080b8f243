package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestNewDirs(t *testing.T) {
	base := t.TempDir()
	path := func(name string) string { return filepath.Join(base, name) }
	made := findNewDirs(base, path("a/b/c"), path("a/d"))
	if want := (newDirs{path("a/b/c"), path("a/b"), path("a"), path("a/d"), path("a")}); !slices.Equal(made, want) {
		t.Errorf("got %q, want %q", made, want)
	}
	for _, dir := range made {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path("a/d/somebody's"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	made.remove()
	if _, err := os.Stat(path("a/b")); err == nil {
		t.Error("an empty directory is left")
	}
	if _, err := os.Stat(path("a/d/somebody's")); err != nil {
		t.Errorf("what is not ours is gone: %v", err)
	}
	if err := os.Remove(path("a/d/somebody's")); err != nil {
		t.Fatal(err)
	}
	made.remove()
	if left, err := os.ReadDir(base); len(left) > 0 || err != nil {
		t.Errorf("%v is left, %v", left, err)
	}
}
