package admin

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// AccessLogOptions configures an AccessLog. The zero value works.
type AccessLogOptions struct {
	Log   *slog.Logger // nil = nothing is written
	Queue int          // flows that may wait to be written; 0 = 4096
}

// AccessLog writes one line per ended flow. The data path hands a flow over and
// goes on at once: what the log cannot keep up with is dropped, counted, and
// told in the log itself.
type AccessLog struct {
	log    *slog.Logger
	c      chan flow.View
	done   chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
	missed atomic.Uint64
}

// NewAccessLog starts one. Close ends it.
func NewAccessLog(o AccessLogOptions) *AccessLog {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Queue == 0 {
		o.Queue = 4096
	}
	a := &AccessLog{log: o.Log, c: make(chan flow.View, o.Queue), done: make(chan struct{})}
	a.wg.Go(a.run)
	return a
}

// OnEnded is for flow.Options: it never blocks.
func (a *AccessLog) OnEnded(v *flow.View) {
	select {
	case a.c <- *v:
	default:
		a.missed.Add(1)
	}
}

// Missed is how many flows were not written.
func (a *AccessLog) Missed() uint64 { return a.missed.Load() }

// Close writes what waits and stops. Flows that end afterwards are not written.
func (a *AccessLog) Close() {
	a.once.Do(func() { close(a.done) })
	a.wg.Wait()
}

func (a *AccessLog) run() {
	var told uint64
	for {
		select {
		case v := <-a.c:
			a.write(&v)
		case <-a.done:
			a.drain()
			a.tell(told)
			return
		}
		if len(a.c) == 0 {
			told = a.tell(told)
		}
	}
}

func (a *AccessLog) drain() {
	for {
		select {
		case v := <-a.c:
			a.write(&v)
		default:
			return
		}
	}
}

// tell logs what has been missed since told.
func (a *AccessLog) tell(told uint64) uint64 {
	now := a.missed.Load()
	if now > told {
		a.log.Warn("access log could not keep up: flows were not written", "missed", now-told)
	}
	return now
}

func (a *AccessLog) write(v *flow.View) {
	attrs := make([]slog.Attr, 0, 16)
	attrs = append(attrs,
		slog.String("flow", v.ID.String()),
		slog.String("proto", v.Protocol.String()),
		slog.String("svc", v.Service),
		slog.String("client", v.Client.String()),
		slog.String("frontend", v.Frontend.String()))
	if v.Backend.IsValid() {
		attrs = append(attrs, slog.String("backend", v.Backend.String()), slog.String("picked", string(v.Picked)))
	}
	if v.Path != "" {
		attrs = append(attrs, slog.String("path", string(v.Path)))
	}
	attrs = append(attrs,
		slog.String("by", string(v.EndedBy)),
		slog.String("reason", string(v.Reason)),
		slog.Uint64("toBackend", v.BytesToBackend),
		slog.Uint64("toClient", v.BytesToClient),
		slog.Duration("dur", v.EndedAt.Sub(v.StartedAt).Round(time.Microsecond)))
	a.log.LogAttrs(context.Background(), slog.LevelInfo, "flow ended", attrs...)
}
