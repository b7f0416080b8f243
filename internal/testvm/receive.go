package testvm

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// receiver unpacks a tar archive that arrives in pieces.
type receiver struct {
	*io.PipeWriter
	finish func() error // waits until all is on disk; may be called again
}

func newReceiver(dir string) *receiver {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := unpack(r, dir)
		_ = r.CloseWithError(errors.Join(err, io.ErrClosedPipe))
		done <- err
	}()
	return &receiver{PipeWriter: w, finish: sync.OnceValue(func() error {
		_ = w.Close()
		if err := <-done; err != nil {
			return fmt.Errorf("unpack files from the machine: %w", err)
		}
		return nil
	})}
}

// unpack writes the files of an archive into a directory, which an empty stream does
// not make, and nothing outside of it.
func unpack(r io.Reader, dir string) error {
	t := tar.NewReader(r)
	h, err := t.Next()
	if err == io.EOF {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for ; err == nil; h, err = t.Next() {
		if err := unpackOne(root, h, t); err != nil {
			return err
		}
	}
	if err != io.EOF {
		return err
	}
	_, err = io.Copy(io.Discard, r) // what pads an archive
	return err
}

func unpackOne(root *os.Root, h *tar.Header, content io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(h.Name, 0o755)
	case tar.TypeReg:
		f, err := root.OpenFile(h.Name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, os.FileMode(h.Mode).Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	}
	return nil // a socket or a link is of no use here
}
