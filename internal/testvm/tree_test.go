package testvm

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cavaliergopher/cpio"
)

// What goes into a tree comes out of its archive, parents first, and the archive
// can be followed by another.
func TestTree(t *testing.T) {
	dir := t.TempDir()
	err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "d/e"), 0o755),
		os.WriteFile(filepath.Join(dir, "d/program"), []byte("#!"), 0o755),
		os.WriteFile(filepath.Join(dir, "d/e/empty"), nil, 0o600),
		os.Symlink("program", filepath.Join(dir, "d/link")),
		os.Symlink("nowhere", filepath.Join(dir, "d/broken")),
	)
	if err != nil {
		t.Fatal(err)
	}
	tree := newTree()
	tree.nodes["lib"] = node{mode: cpio.TypeSymlink | 0o777, link: "/usr/lib"}
	err = errors.Join(tree.addData("/lib/deep/er", []byte("12345")), tree.addHost(filepath.Join(dir, "d"), "/root/d"))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := tree.writeTo(&b); err != nil {
		t.Fatal(err)
	}
	if b.Len()%4 != 0 {
		t.Errorf("the archive has %d bytes", b.Len())
	}
	want := []struct {
		name    string
		mode    cpio.FileMode
		content string // or where the link leads
	}{
		{"lib", cpio.TypeSymlink | 0o777, "/usr/lib"},
		{"root", cpio.TypeDir | 0o755, ""},
		{"root/d", cpio.TypeDir | 0o755, ""},
		{"root/d/e", cpio.TypeDir | 0o755, ""},
		{"root/d/e/empty", cpio.TypeReg | 0o600, ""},
		{"root/d/link", cpio.TypeReg | 0o755, "#!"},
		{"root/d/program", cpio.TypeReg | 0o755, "#!"},
		{"usr", cpio.TypeDir | 0o755, ""},
		{"usr/lib", cpio.TypeDir | 0o755, ""},
		{"usr/lib/deep", cpio.TypeDir | 0o755, ""},
		{"usr/lib/deep/er", cpio.TypeReg | 0o644, "12345"},
	}
	r := cpio.NewReader(&b)
	for _, w := range want {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("in place of %s: %v", w.name, err)
		}
		content, err := io.ReadAll(r)
		if h.Name != w.name || h.Mode != w.mode || h.Linkname+string(content) != w.content || err != nil {
			t.Errorf("got %s %v %q %q, %v; want %+v", h.Name, h.Mode, h.Linkname, content, err, w)
		}
	}
	if h, err := r.Next(); err != io.EOF {
		t.Errorf("after the last: %v, %v", h, err)
	}
}

// An archive from a machine writes into its directory and nowhere else.
func TestUnpack(t *testing.T) {
	for _, tc := range []struct {
		name   string
		header tar.Header
		fails  bool
		at     string
	}{
		{"file", tar.Header{Name: "a", Typeflag: tar.TypeReg, Mode: 0o600}, false, "out/a"},
		{"upwards", tar.Header{Name: "../a", Typeflag: tar.TypeReg, Mode: 0o600}, true, ""},
		{"absolute", tar.Header{Name: "/tmp/a", Typeflag: tar.TypeReg, Mode: 0o600}, true, ""},
		{"link", tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, false, ""},
		{"device", tar.Header{Name: "a", Typeflag: tar.TypeChar, Devmajor: 1}, false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			if err := errors.Join(w.WriteHeader(&tc.header), w.Close()); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			r := newReceiver(filepath.Join(dir, "out"))
			_, writeErr := r.Write(b.Bytes())
			if err := errors.Join(writeErr, r.finish()); (err != nil) != tc.fails {
				t.Errorf("got %v", err)
			}
			var found []string
			_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					rel, _ := filepath.Rel(dir, path)
					found = append(found, rel)
				}
				return err
			})
			if tc.at == "" && len(found) != 0 || tc.at != "" && (len(found) != 1 || found[0] != tc.at) {
				t.Errorf("files: %v, want %q", found, tc.at)
			}
		})
	}
	dir := filepath.Join(t.TempDir(), "out")
	if err := newReceiver(dir).finish(); err != nil {
		t.Errorf("of nothing: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a directory for nothing")
	}
}
