package kube

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Times of a dirWatcher.
const (
	settle      = 100 * time.Millisecond // a change is told after that long without another
	settleLimit = time.Second            // but no later than that
	lookEvery   = 30 * time.Second       // without being told
	lookBlind   = 2 * time.Second        // the same, without inotify
)

// dirWatcher tells when a file, or a directory and what is in it, may have changed:
// written in place, replaced by rename, or reached by links that are swapped, as
// Kubernetes does for a mounted ConfigMap. It belongs to one goroutine.
type dirWatcher struct {
	path    string
	log     *slog.Logger
	inotify *fsnotify.Watcher // nil = there is none to be had
	dirs    []string
	said    string // the last warning
	looks   *time.Ticker
	seen    string // the times and sizes of everything, at the last look
}

func newDirWatcher(path string, log *slog.Logger) *dirWatcher {
	w := &dirWatcher{path: path, log: log}
	every := lookEvery
	var err error
	if w.inotify, err = fsnotify.NewWatcher(); err != nil {
		w.inotify, every = nil, lookBlind
		log.Warn("no inotify: looking at the objects every few seconds instead", "err", err)
	}
	w.looks = time.NewTicker(every)
	w.follow()
	w.seen = w.look()
	return w
}

func (w *dirWatcher) close() {
	w.looks.Stop()
	if w.inotify != nil {
		_ = w.inotify.Close()
	}
}

// follow watches the directories that lead to what is read. Watching one again is
// cheap, and needed if it was replaced.
func (w *dirWatcher) follow() {
	if w.inotify == nil {
		return
	}
	dirs := []string{filepath.Dir(filepath.Clean(w.path))}
	ends := []string{w.path}
	if fi, err := os.Stat(w.path); err == nil && fi.IsDir() {
		dirs = append(dirs, w.path)
		entries, _ := filepath.Glob(filepath.Join(w.path, "*"))
		ends = append(ends, entries...)
	}
	for _, end := range ends {
		if real, err := filepath.EvalSymlinks(end); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	for _, old := range w.dirs {
		if !slices.Contains(dirs, old) {
			_ = w.inotify.Remove(old) // gone already if the directory is
		}
	}
	w.dirs = dirs
	for _, dir := range dirs {
		if err := w.inotify.Add(dir); err != nil && err.Error() != w.said {
			w.said = err.Error()
			w.log.Warn("cannot watch a directory of objects: looking at it now and then", "err", err)
		}
	}
}

// wait returns when it is time to read: something has changed, or somebody asks. Not
// ok = ctx has ended.
func (w *dirWatcher) wait(ctx context.Context, ask <-chan struct{}) (asked, ok bool) {
	var events <-chan fsnotify.Event
	var errs <-chan error
	if w.inotify != nil {
		events, errs = w.inotify.Events, w.inotify.Errors
	}
	quiet := time.NewTimer(settle)
	defer quiet.Stop() // the first time: what changed between reading and watching
	until := time.Now().Add(settleLimit)
	for {
		select {
		case <-ctx.Done():
			return false, false
		case <-ask:
			w.follow()
			w.seen = w.look()
			return true, true
		case <-quiet.C:
			until = time.Time{}
		case <-w.looks.C:
		case <-events:
			w.touch(quiet, &until)
			continue
		case <-errs: // an overflow: something was missed
			w.touch(quiet, &until)
			continue
		}
		w.follow()
		if now := w.look(); now != w.seen {
			w.seen = now
			return false, true
		}
	}
}

// touch waits for quiet, but not for ever.
func (w *dirWatcher) touch(quiet *time.Timer, until *time.Time) {
	now := time.Now()
	if until.IsZero() {
		*until = now.Add(settleLimit)
	}
	quiet.Reset(min(settle, max(until.Sub(now), 0)))
}

// look is how everything is now, but for what is in it. A file that was written less
// than a tick of the file system's clock before it was read may change again without
// a sign: what changed just now looks different the next time too.
func (w *dirWatcher) look() string {
	paths := []string{w.path}
	if entries, err := filepath.Glob(filepath.Join(w.path, "*")); err == nil {
		paths = append(paths, entries...)
	}
	var b strings.Builder
	for _, path := range paths {
		fi, err := os.Stat(path)
		if err != nil {
			fmt.Fprintln(&b, path, err)
			continue
		}
		fmt.Fprintln(&b, path, fi.Size(), fi.ModTime().UnixNano(), time.Since(fi.ModTime()) < clockGrain)
	}
	return b.String()
}

// clockGrain is more than the distance of two file times that the kernel can tell
// apart.
const clockGrain = 20 * time.Millisecond
