package main

import (
	"archive/tar"
	"bufio"
	"encoding/gob"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/baton-lb/baton/internal/testvm/wire"
)

// port is the way to the host.
type port struct {
	// mu guards what follows.
	mu  sync.Mutex
	gob *gob.Encoder
}

func newPort(w io.Writer) *port { return &port{gob: gob.NewEncoder(w)} }

// send says one thing. Without a way to the host there is nothing left to do, and
// the console is where that can still be read.
func (p *port) send(m wire.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.gob.Encode(m); err != nil {
		fmt.Fprintln(os.Stderr, "guest: speak to host:", err)
		os.Exit(1)
	}
}

func (p *port) trouble(err error) { p.send(wire.Message{Trouble: err.Error()}) }

// sender is a writer whose bytes travel in one field of a message.
type sender func(b []byte)

func (s sender) Write(b []byte) (int, error) {
	s(b)
	return len(b), nil
}

// sendFiles sends a directory as a tar archive.
func (p *port) sendFiles(dir string) error {
	b := bufio.NewWriterSize(sender(func(b []byte) { p.send(wire.Message{Files: b}) }), 64<<10)
	t := tar.NewWriter(b)
	if err := t.AddFS(os.DirFS(dir)); err != nil {
		return fmt.Errorf("send %s: %w", dir, err)
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("send %s: %w", dir, err)
	}
	return b.Flush()
}
