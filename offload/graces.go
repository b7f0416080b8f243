package offload

import "sync"

// graces shares grace periods: one takes some milliseconds, and serves everybody who
// has asked before it began.
type graces struct {
	grace func() error // immutable

	mu      sync.Mutex // guards what follows
	next    *grace     // what those wait for who ask now
	running bool
}

type grace struct {
	done chan struct{}
	err  error // once done
}

// wait returns when a grace period is over that began after the call.
func (g *graces) wait() error {
	g.mu.Lock()
	if g.next == nil {
		g.next = &grace{done: make(chan struct{})}
	}
	mine := g.next
	if !g.running { // somebody has to do it
		g.running = true
		g.mu.Unlock()
		g.run(mine)
	} else {
		g.mu.Unlock()
	}
	<-mine.done
	return mine.err
}

// run does the caller's period, and leaves the next one to one of those who wait for
// it.
func (g *graces) run(mine *grace) {
	g.mu.Lock()
	g.next = nil // whoever asks from here on needs a later one
	g.mu.Unlock()
	mine.err = g.grace()
	close(mine.done)
	g.mu.Lock()
	defer g.mu.Unlock()
	if next := g.next; next != nil {
		go g.run(next)
		return
	}
	g.running = false
}
