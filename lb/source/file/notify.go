package file

import (
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// notifier hears of changes in the directories that lead to a file. The file
// itself is not watched: a rename or a swapped link puts another in its place.
type notifier struct {
	path    string
	log     *slog.Logger
	inotify *fsnotify.Watcher // nil = not open, or there is none to be had
	dirs    []string
	said    string // the last warning
}

// open never fails: without inotify the channels stay silent.
func (n *notifier) open() {
	inotify, err := fsnotify.NewWatcher()
	if err != nil {
		n.log.Warn("no inotify: looking at the configuration every few seconds instead", "err", err)
		return
	}
	n.inotify = inotify
	n.follow()
}

func (n *notifier) close() {
	if n.inotify != nil {
		n.inotify.Close()
	}
}

func (n *notifier) channels() (<-chan fsnotify.Event, <-chan error) {
	if n.inotify == nil {
		return nil, nil
	}
	return n.inotify.Events, n.inotify.Errors
}

// follow watches the directory of the file as it is named and the one in which
// it really lies. Watching one again is cheap, and needed if it was replaced.
func (n *notifier) follow() {
	if n.inotify == nil {
		return
	}
	dirs := []string{filepath.Dir(n.path)}
	if end, err := filepath.EvalSymlinks(n.path); err == nil && filepath.Dir(end) != dirs[0] {
		dirs = append(dirs, filepath.Dir(end))
	}
	for _, old := range n.dirs {
		if !slices.Contains(dirs, old) {
			_ = n.inotify.Remove(old) // gone already if the directory is
		}
	}
	n.dirs = dirs
	for _, dir := range dirs {
		if err := n.inotify.Add(dir); err != nil && err.Error() != n.said {
			n.said = err.Error()
			n.log.Warn("cannot watch the directory of the configuration: looking at it now and then", "err", err)
		}
	}
}

// settleLimit bounds the wait for quiet, in settle times: a directory may be
// busy for other reasons.
const settleLimit = 10

// settler waits until changes stop.
type settler struct {
	timer *time.Timer
	quiet time.Duration
	until time.Time // no later than this; zero = nothing is awaited
}

func newSettler(quiet time.Duration) *settler {
	s := &settler{timer: time.NewTimer(quiet), quiet: quiet}
	s.timer.Stop()
	return s
}

// touch says that something changed now.
func (s *settler) touch() {
	now := time.Now()
	if s.until.IsZero() {
		s.until = now.Add(settleLimit * s.quiet)
	}
	s.timer.Reset(min(s.quiet, max(s.until.Sub(now), 0)))
}

func (s *settler) done() { s.until = time.Time{} }
