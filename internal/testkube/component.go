package testkube

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/baton-lb/baton/internal/testnet"
)

// component is a program of the control plane.
type component struct {
	t    testnet.TB
	name string
	cmd  *testnet.Cmd
	log  tail
}

// tail keeps the end of what is written to it. It is safe for concurrent use.
type tail struct {
	mu sync.Mutex // guards what follows
	b  []byte
}

// tailBytes is how much of a component's log an error shows.
const tailBytes = 4 << 10

// Write implements io.Writer.
func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b = append(l.b, p...); len(l.b) > 2*tailBytes {
		l.b = append(l.b[:0], l.b[len(l.b)-tailBytes:]...)
	}
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.TrimSpace(l.b))
}

func (c *Cluster) newComponent(name, program string, args ...string) *component {
	p := &component{t: c.t, name: name, cmd: c.host.Command(context.Background(), program, args...)}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = c.dir, &p.log, &p.log
	return p
}

func (p *component) start() {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", p.name, err)
	}
}

func (p *component) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// eventually waits for something that the component is to do, and shows its log when it
// does not.
func (p *component) eventually(what string, cond func() error) {
	p.t.Helper()
	testnet.Eventually(p.t, startTimeout, what, func() error {
		if err := cond(); err != nil {
			return fmt.Errorf("%w; %s says:\n%s", err, p.name, &p.log)
		}
		return nil
	})
}
