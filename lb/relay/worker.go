package relay

import (
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/relay/poll"
	"github.com/baton-lb/baton/lb/relay/proxyproto"
	"github.com/baton-lb/baton/lb/relay/pump"
)

// worker is one event loop and what its flows share.
type worker struct {
	r    *Relay
	loop *poll.Loop
	kit  *pump.Kit

	// The loop's goroutine only.
	flows     map[*tcpFlow]struct{}
	listeners map[*listener]*acceptor
	paused    bool // no listener is watched: descriptors or memory are short
	backoff   time.Duration
	resume    poll.Timer
	stopping  bool
	header    []byte // see headerBuffer
	udp       udpWorker
}

func newWorker(r *Relay, pipes int) (*worker, error) {
	loop, err := poll.New()
	if err != nil {
		return nil, err
	}
	w := &worker{
		r: r, loop: loop, kit: pump.NewKit(pipes),
		flows: make(map[*tcpFlow]struct{}), listeners: make(map[*listener]*acceptor),
	}
	w.resume.Fire = w.tryResume
	w.udp = newUDPWorker(w)
	return w, nil
}

// Pauses between attempts to accept when the host is short of something.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = time.Second
)

// pause stops accepting for a while. Clients wait in the listeners' queues.
func (w *worker) pause(why flow.Drop) {
	if w.paused {
		return
	}
	w.r.registry.Drop(why)
	w.paused = true
	for l := range w.listeners {
		w.loop.Remove(l.fd)
	}
	w.backoff = min(max(minBackoff, 2*w.backoff), maxBackoff)
	w.loop.Arm(&w.resume, w.backoff)
}

// tryResume accepts again if there is room for a connection.
func (w *worker) tryResume() {
	if !w.paused {
		return
	}
	if !w.r.budget.room(2) {
		w.loop.Arm(&w.resume, w.backoff)
		return
	}
	w.paused = false
	w.loop.Disarm(&w.resume)
	for l, a := range w.listeners {
		w.watch(l, a)
	}
}

// headerBuffer holds one PROXY header while it is read or written.
func (w *worker) headerBuffer() []byte {
	if w.header == nil {
		w.header = make([]byte, proxyproto.MaxV2)
	}
	return w.header
}

// accepted notes that the shortage is over.
func (w *worker) accepted() { w.backoff = 0 }

func (w *worker) watch(l *listener, a *acceptor) {
	if err := w.loop.AddListener(l.fd, a); err != nil {
		// Only a lack of memory (or of max_user_watches) can do this; try again.
		w.pause(flow.DropNoMemory)
	}
}

// addListener and removeListener are posted by the control plane.

func (w *worker) addListener(l *listener) {
	a := &acceptor{w: w, l: l}
	w.listeners[l] = a
	if !w.paused {
		w.watch(l, a)
	}
}

func (w *worker) removeListener(l *listener) {
	delete(w.listeners, l)
	w.loop.Remove(l.fd)
}

// quietest is the worker with the fewest flows, unless w has hardly more.
func (w *worker) quietest() *worker {
	best := w
	for _, other := range w.r.workers {
		if other.loop.Load().Load() < best.loop.Load().Load() {
			best = other
		}
	}
	if w.loop.Load().Load() <= best.loop.Load().Load()*5/4+8 {
		return w
	}
	return best
}

// run serves the loop until it is closed, then ends what is left.
func (w *worker) run() {
	w.loop.Run()
	for f := range w.flows {
		f.abort(flow.ByBaton, flow.ReasonShutdown)
	}
	w.kit.Close()
}
