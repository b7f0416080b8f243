package file

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"time"
)

// WatchOptions tune a Watcher.
type WatchOptions struct {
	Settle    time.Duration // a change is read after that long without another; 0 = 100 ms
	Recheck   time.Duration // the file is looked at that often without being told; 0 = 30 s, 2 s without inotify
	NoInotify bool          // only look, as for a file system that tells nothing
	Log       *slog.Logger  // nil = nothing is logged
}

// Watcher tells of changes of one file: written in place, replaced by rename, or
// reached through symbolic links that are swapped, as Kubernetes does for a
// mounted ConfigMap.
type Watcher struct {
	path   string
	o      WatchOptions
	reload chan struct{} // holds one request

	// Of Run's goroutine.
	onChange func(*Config, error)
	known    bool              // sum is what onChange heard about last
	sum      [sha256.Size]byte // of the content
	seen     stamp             // of the file that has the content; zero = unsure
	forced   bool              // a Reload is not yet answered
	said     string            // the error of reading that was reported last; "" = none
}

// NewWatcher makes a watcher of a file. With the configuration that was loaded
// from it before, only what differs from that is a change; with nil the first
// look is one too.
func NewWatcher(path string, known *Config, o WatchOptions) *Watcher {
	if o.Settle <= 0 {
		o.Settle = 100 * time.Millisecond
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	w := &Watcher{path: path, o: o, reload: make(chan struct{}, 1)}
	if known != nil {
		w.known, w.sum = true, known.sum
	}
	return w
}

// Reload has the file read and reported at once, changed or not. It does not
// wait; it may be called at any time, by anyone.
func (w *Watcher) Reload() {
	select {
	case w.reload <- struct{}{}:
	default: // one is waiting already
	}
}

// Run watches until ctx ends. onChange gets the new configuration, or why there
// is none: the file is faulty (Faults), unreadable or gone. It is called from
// within Run only.
func (w *Watcher) Run(ctx context.Context, onChange func(*Config, error)) {
	w.onChange = onChange
	n := &notifier{path: w.path, log: w.o.Log}
	if !w.o.NoInotify {
		n.open()
	}
	defer n.close()
	tick := time.NewTicker(w.recheck(n))
	defer tick.Stop()
	settle := newSettler(w.o.Settle)
	for changing := w.look(); ; changing = w.look() {
		if changing {
			settle.touch()
		}
		if !w.wait(ctx, n, tick.C, settle) {
			return
		}
		n.follow() // links may lead elsewhere now
	}
}

func (w *Watcher) recheck(n *notifier) time.Duration {
	switch {
	case w.o.Recheck > 0:
		return w.o.Recheck
	case n.inotify == nil:
		return 2 * time.Second
	}
	return 30 * time.Second
}

// wait returns when it is time to look at the file; false = ctx has ended.
func (w *Watcher) wait(ctx context.Context, n *notifier, tick <-chan time.Time, settle *settler) bool {
	events, errs := n.channels()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-w.reload:
			w.forced = true
			return true
		case <-tick:
			return true
		case <-settle.timer.C:
			settle.done()
			return true
		case <-events:
			settle.touch()
		case <-errs: // an overflow: something was missed
			settle.touch()
		}
	}
}

// look reads the file if it may have changed and reports what is new. It returns
// true when the file changed while it was read: it is to be looked at again.
func (w *Watcher) look() (changing bool) {
	before, err := stampOf(w.path)
	if err == nil && before == w.seen && !w.forced {
		return false
	}
	var data []byte
	if err == nil {
		data, err = readFile(w.path)
	}
	if err == nil {
		var after stamp
		if after, err = stampOf(w.path); err == nil && after != before {
			return true
		}
	}
	if err != nil {
		w.unreadable(err)
		return false
	}
	w.seen = before.ifSure(time.Now())
	w.report(data)
	return false
}

// report parses the content and hands it on, unless it is known.
func (w *Watcher) report(data []byte) {
	sum := sha256.Sum256(data)
	if w.known && sum == w.sum && !w.forced {
		return
	}
	w.known, w.sum, w.forced, w.said = true, sum, false, ""
	w.onChange(Parse(w.path, data))
}

// unreadable reports an error once, and again only when asked by Reload. The
// content that comes after it is new even if it is the old one.
func (w *Watcher) unreadable(err error) {
	w.known, w.seen = false, stamp{}
	if err.Error() == w.said && !w.forced {
		return
	}
	w.said, w.forced = err.Error(), false
	w.onChange(nil, err)
}

var errNotRegular = errors.New("not a regular file, so it cannot be watched")
