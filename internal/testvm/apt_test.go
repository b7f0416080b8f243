package testvm

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/baton-lb/baton/internal/cache"
)

const metaStanza = `Package: linux-image-cloud-amd64
Source: linux-signed-amd64 (6.1.192+3)
Version: 6.1.192-3
Depends: linux-image-6.1.0-57-cloud-amd64 (= 6.1.192-3)
Description: Linux for x86-64 cloud (meta-package)
 Version: 9
SHA256: fcd7
`

const imageStanza = `Package: linux-image-6.1.0-57-cloud-amd64
Version: 6.1.192-3
Depends: kmod, linux-base (>= 4.3~), initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool
SHA256: 1234
`

func TestParsePackage(t *testing.T) {
	p := parsePackage(metaStanza)
	if p.name != "linux-image-cloud-amd64" || p.version != "6.1.192-3" || p.sha256 != "fcd7" {
		t.Errorf("got %+v", p)
	}
	if image, meta := p.image(); image != "linux-image-6.1.0-57-cloud-amd64" || !meta {
		t.Errorf("it stands for %q, %v", image, meta)
	}
	p = parsePackage(imageStanza)
	if want := []string{"kmod", "linux-base", "initramfs-tools"}; !slices.Equal(p.depends, want) {
		t.Errorf("depends on %v, want %v", p.depends, want)
	}
	if image, meta := p.image(); meta {
		t.Errorf("an image stands for %q", image)
	}
	if p := parsePackage(""); p.name != "" || p.depends != nil {
		t.Errorf("of nothing: %+v", p)
	}
}

// fakeApt puts programs in apt's place: apt-cache knows the given packages, and
// nothing can be downloaded.
func fakeApt(t *testing.T, stanzas ...string) {
	t.Helper()
	dir := t.TempDir()
	for _, s := range stanzas {
		if err := os.WriteFile(filepath.Join(dir, parsePackage(s).name), []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, script := range map[string]string{
		"apt-cache": `for name; do :; done; exec cat "` + dir + `/$name"`,
		"apt-get":   "echo no network >&2; exit 100",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestFindKernel(t *testing.T) {
	fakeApt(t, metaStanza, imageStanza)
	p, err := findKernel(t.Context(), "6.1")
	if err != nil || p.String() != "linux-image-6.1.0-57-cloud-amd64=6.1.192-3" {
		t.Errorf("got %v, %v", p, err)
	}
	for _, other := range []string{"6.12", "6.10", "5.10"} {
		if p, err := findKernel(t.Context(), other); !errors.Is(err, ErrUnavailable) {
			t.Errorf("linux %s: got %v, %v", other, p, err)
		}
	}
}

// A kernel that there is not is no machine that fails.
func TestKernelUnavailable(t *testing.T) {
	fakeApt(t, metaStanza, imageStanza)
	statuses, err := Run(t.Context(), Spec{Kernel: "1.0", Cache: t.TempDir(), Commands: []Command{{Args: []string{"true"}}}})
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "linux 1.0") || len(statuses) != 0 {
		t.Errorf("got %v, %v", statuses, err)
	}
}

// A kernel that was used once is there also when apt can give none.
func TestKernelWithoutNetwork(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	kept, err := cache.Open(filepath.Join(t.TempDir(), "cache"), "")
	if err != nil {
		t.Fatal(err)
	}
	fill := func(key, content string) *cache.Entry {
		e, err := kept.Get(key, func(dir string) error { return os.WriteFile(filepath.Join(dir, "file"), []byte(content), 0o644) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		return e
	}
	fakeApt(t, metaStanza, imageStanza)
	_, err = openKernel(t.Context(), kept, "6.1", log)
	if err == nil || !strings.Contains(err.Error(), "no network") {
		t.Fatalf("got %v", err)
	}
	last := fill("last", "kernel")
	if err := os.Symlink("last", filepath.Join(kept.Dir(), "linux-6.1")); err != nil {
		t.Fatal(err)
	}
	k, err := openKernel(t.Context(), kept, "6.1", log)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if k.Dir != last.Dir {
		t.Errorf("got %s", k.Dir)
	}
	fill(parsePackage(imageStanza).cacheKey(), "offered")
	offered, err := openKernel(t.Context(), kept, "6.1", log)
	if err != nil {
		t.Fatal(err)
	}
	defer offered.Close()
	if got, err := os.ReadFile(filepath.Join(offered.Dir, "file")); string(got) != "offered" {
		t.Errorf("got %s, %v in place of what apt offers", got, err)
	}
	if link, err := os.Readlink(filepath.Join(kept.Dir(), "linux-6.1")); link != filepath.Base(offered.Dir) {
		t.Errorf("the kernel of last time is %q, %v", link, err)
	}
}
