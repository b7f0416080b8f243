package testvm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cavaliergopher/cpio"
)

// tree is a file system to be: what an initramfs unpacks to. All of it belongs to
// root. Directories on the way to a file are made.
type tree struct {
	nodes map[string]node // by path without the leading slash
}

// node is a directory, a symlink, or a file with its content here or on the host.
type node struct {
	mode   cpio.FileMode
	link   string
	data   []byte
	source string
}

func newTree() *tree { return &tree{nodes: make(map[string]node)} }

// merged are the directories that are symlinks on a system with merged /usr; one
// for both kinds of programs is enough.
var merged = [][2]string{
	{"usr/sbin", "usr/bin"},
	{"bin", "usr/bin"},
	{"sbin", "usr/bin"},
	{"lib64", "usr/lib64"},
	{"lib", "usr/lib"},
}

// clean is a path as the nodes have it.
func clean(p string) (string, error) {
	if !path.IsAbs(p) {
		return "", fmt.Errorf("put %s into the machine: %w: not absolute", p, fs.ErrInvalid)
	}
	p = strings.TrimPrefix(path.Clean(p), "/")
	for _, m := range merged {
		if p == m[0] || strings.HasPrefix(p, m[0]+"/") {
			p = m[1] + strings.TrimPrefix(p, m[0])
		}
	}
	return p, nil
}

func (t *tree) put(at string, n node) error {
	p, err := clean(at)
	if err != nil {
		return err
	}
	t.nodes[p] = n
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if _, ok := t.nodes[dir]; !ok {
			t.nodes[dir] = node{mode: cpio.TypeDir | 0o755}
		}
	}
	return nil
}

func (t *tree) addDir(at string, mode cpio.FileMode) error {
	return t.put(at, node{mode: cpio.TypeDir | mode})
}

func (t *tree) addData(at string, data []byte) error {
	return t.put(at, node{mode: cpio.TypeReg | 0o644, data: data})
}

// addHost puts a file or a directory of the host at a path. Symlinks become what
// they lead to, so that nothing leads out of the machine.
func (t *tree) addHost(source, at string) error {
	info, err := os.Stat(source)
	switch {
	case err != nil:
		return err
	case info.Mode().IsRegular():
		return t.put(at, node{mode: cpio.TypeReg | cpio.FileMode(info.Mode().Perm()), source: source})
	case !info.IsDir():
		return fmt.Errorf("put %s into the machine: %w: neither file nor directory", source, fs.ErrInvalid)
	}
	if err := t.addDir(at, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(source)
	if err != nil {
		return err
	}
	for _, e := range entries {
		err := t.addHost(filepath.Join(source, e.Name()), path.Join(at, e.Name()))
		if err != nil && !(errors.Is(err, fs.ErrNotExist) && e.Type() == fs.ModeSymlink) { // leads nowhere
			return err
		}
	}
	return nil
}

// writeTo writes the tree as a cpio archive of the kind that the kernel unpacks
// (Documentation/driver-api/early-userspace/buffer-format.rst). Its length is a
// multiple of four, so that archives may simply follow one another.
func (t *tree) writeTo(w io.Writer) error {
	c := cpio.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) { // parents come first
		if err := t.nodes[name].writeTo(c, name); err != nil {
			return fmt.Errorf("archive %s: %w", name, err)
		}
	}
	return c.Close()
}

func (n node) writeTo(c *cpio.Writer, name string) error {
	h := cpio.Header{Name: name, Mode: n.mode, Links: 1}
	var content io.Reader = bytes.NewReader(n.data)
	h.Size = int64(len(n.data))
	switch {
	case n.link != "":
		content, h.Size = strings.NewReader(n.link), int64(len(n.link))
	case n.source != "":
		f, err := os.Open(n.source)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		content, h.Size = f, info.Size()
	}
	if err := c.WriteHeader(&h); err != nil {
		return err
	}
	_, err := io.Copy(c, content)
	return err
}

func (t *tree) writeFile(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return t.writeTo(f)
}
