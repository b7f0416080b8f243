package relay

import (
	"slices"
	"sync"
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
	paused    bool        // descriptors or memory are short
	asleep    []*acceptor // listeners that are not watched meanwhile, the first one longest
	backoff   time.Duration
	resume    poll.Timer
	stopping  bool
	header    []byte // see headerBuffer
	udp       udpWorker

	ended chan struct{} // closed when the loop has returned
	late  sync.Mutex    // guards what remains then: flows that an Offloader has stopped
}

func newWorker(r *Relay, pipes int) (*worker, error) {
	loop, err := poll.New()
	if err != nil {
		return nil, err
	}
	w := &worker{
		r: r, loop: loop, kit: pump.NewKit(pipes),
		flows: make(map[*tcpFlow]struct{}), listeners: make(map[*listener]*acceptor),
		ended: make(chan struct{}),
	}
	w.resume.Fire = w.resumeLater
	w.udp = newUDPWorker(w)
	return w, nil
}

// Pauses between attempts to accept when the host is short of something.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = time.Second
)

// pause stops accepting for a while. Clients wait in the listeners' queues: of
// each the loop hears once more, and then no more until it is woken. With
// thousands of listeners it would cost too much to unwatch all at each pause.
func (w *worker) pause(why flow.Drop) {
	if w.paused {
		return
	}
	w.r.registry.Drop(why)
	w.paused = true
	w.backoff = min(max(minBackoff, 2*w.backoff), maxBackoff)
	w.loop.Arm(&w.resume, w.backoff)
}

// sleep leaves clients at a listener waiting until there is room for them.
func (w *worker) sleep(a *acceptor) {
	if !a.asleep {
		w.loop.Remove(a.l.fd)
		a.asleep = true
		w.asleep = append(w.asleep, a)
	}
}

// resumeLater looks again for what was short.
func (w *worker) resumeLater() {
	w.tryResume()
	if w.paused || len(w.asleep) > 0 {
		w.loop.Arm(&w.resume, max(minBackoff, w.backoff))
	}
}

// tryResume accepts again if there is room for a connection: at no more
// listeners than there is room for connections.
func (w *worker) tryResume() {
	if !w.paused && len(w.asleep) == 0 {
		return
	}
	room := w.r.budget.room() / perFlow
	if room == 0 {
		return
	}
	w.paused = false
	awake := w.asleep[:min(room, len(w.asleep))]
	w.asleep = w.asleep[len(awake):]
	for _, a := range awake {
		a.asleep = false
		w.watch(a)
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

func (w *worker) watch(a *acceptor) {
	if err := w.loop.AddListener(a.l.fd, a); err != nil {
		// Only a lack of memory (or of max_user_watches) can do this; try again.
		w.pause(flow.DropNoMemory)
		w.sleep(a)
	}
}

// addListener and removeListener are posted by the control plane.

func (w *worker) addListener(l *listener) {
	a := &acceptor{w: w, l: l}
	w.listeners[l] = a
	w.watch(a)
}

// removeListener takes the connections that wait, which the kernel would reset
// with the listener.
func (w *worker) removeListener(l *listener) {
	a := w.listeners[l]
	for range maxWaiting / acceptBatch {
		if a == nil || !a.accept() {
			break
		}
	}
	w.leaveListener(l)
}

// leaveListener leaves the connections that wait to others who have the socket.
func (w *worker) leaveListener(l *listener) {
	a := w.listeners[l]
	delete(w.listeners, l)
	w.loop.Remove(l.fd)
	w.asleep = slices.DeleteFunc(w.asleep, func(other *acceptor) bool { return other == a })
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

// post runs what concerns the worker's flows on its loop, or, once the relay is
// closed, here.
func (w *worker) post(what func()) {
	if w.loop.Post(what) {
		return
	}
	<-w.ended
	w.late.Lock()
	defer w.late.Unlock()
	what()
}

// run serves the loop until it is closed, then ends what is left. Flows that an
// Offloader has stopped end when it lets them go (see pair.do).
func (w *worker) run() {
	w.loop.Run()
	for f := range w.flows {
		f.abort(flow.ByBaton, flow.ReasonShutdown)
	}
	w.kit.Close()
	w.udp.refuser.Close()
	close(w.ended)
}
