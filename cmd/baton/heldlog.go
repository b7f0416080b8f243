package main

import (
	"context"
	"log/slog"
	"sync"
)

// heldLog is a handler that keeps what is logged until it is released.
type heldLog struct {
	slog.Handler
	held *held
}

// held is shared by the handlers that are made of one.
type held struct {
	mu       sync.Mutex // guards what follows
	released bool
	records  []func() error
}

// holdLog returns a logger whose records wait for release. At level debug they
// do not: somebody wants to see how far a start comes.
func holdLog(ctx context.Context, log *slog.Logger) (_ *slog.Logger, release func()) {
	if log.Enabled(ctx, slog.LevelDebug) {
		return log, func() {}
	}
	h := &held{}
	return slog.New(heldLog{log.Handler(), h}), h.release
}

// Handle implements slog.Handler.
func (l heldLog) Handle(ctx context.Context, r slog.Record) error {
	l.held.mu.Lock()
	if !l.held.released {
		r := r.Clone()
		l.held.records = append(l.held.records, func() error { return l.Handler.Handle(ctx, r) })
		l.held.mu.Unlock()
		return nil
	}
	l.held.mu.Unlock()
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l heldLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return heldLog{l.Handler.WithAttrs(attrs), l.held}
}

// WithGroup implements slog.Handler.
func (l heldLog) WithGroup(name string) slog.Handler {
	return heldLog{l.Handler.WithGroup(name), l.held}
}

func (h *held) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, write := range h.records {
		_ = write()
	}
	h.records, h.released = nil, true
}
