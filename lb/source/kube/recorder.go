package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	maxEvents   = 1000            // that wait to be written; what is more is dropped
	maxTries    = 20              // to write one, some two minutes
	seriesEvery = 6 * time.Minute // counts of repetitions are written, and what did not repeat is forgotten
	maxName     = 253             // of an object, in bytes
)

// recorder writes events to an API server, one after the other. Of one that repeats only
// the count is written, the first time at once.
type recorder struct {
	// Immutable.
	log      *slog.Logger
	clients  func(namespace string) eventWriter
	instance string
	queue    chan *eventsv1.Event

	muted atomic.Bool // another process speaks for this node

	// Of the goroutine that writes.
	known map[eventKey]*recorded
}

// eventKey is what two events have in common that are one.
type eventKey struct {
	kind, reason, action, note string
	regarding, related         corev1.ObjectReference
}

// recorded is an event that was written.
type recorded struct {
	event     *eventsv1.Event
	last      time.Time
	uncounted bool // it has repeated since its series was written
}

func newRecorder(clients func(namespace string) eventWriter, log *slog.Logger) *recorder {
	host, _ := os.Hostname() // a name for who reads it, no more
	return &recorder{
		log: log, clients: clients, instance: reporter + "-" + host,
		queue: make(chan *eventsv1.Event, maxEvents), known: make(map[eventKey]*recorded),
	}
}

// record has an event written, some time. It does not wait.
func (r *recorder) record(about, related *corev1.ObjectReference, kind, reason, action, note string) {
	now := time.Now()
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	unique := fmt.Sprintf(".%x", now.UnixNano())
	name := strings.TrimRight(about.Name[:min(len(about.Name), maxName-len(unique))], ".-")
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + unique},
		EventTime:  metav1.NewMicroTime(now), ReportingController: reporter, ReportingInstance: r.instance,
		Type: kind, Reason: reason, Action: action, Note: note, Regarding: *about, Related: related,
	}
	select {
	case r.queue <- e:
	default:
		r.log.Debug("an event is dropped: too many wait", "about", about.Name, "reason", reason)
	}
}

// run writes until ctx ends.
func (r *recorder) run(ctx context.Context) {
	settle := time.NewTicker(seriesEvery)
	defer settle.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-r.queue:
			r.take(ctx, e)
		case <-settle.C:
			r.settle(ctx)
		}
	}
}

func eventKeyOf(e *eventsv1.Event) eventKey {
	k := eventKey{kind: e.Type, reason: e.Reason, action: e.Action, note: e.Note, regarding: e.Regarding}
	if e.Related != nil {
		k.related = *e.Related
	}
	return k
}

func (r *recorder) take(ctx context.Context, e *eventsv1.Event) {
	k := eventKeyOf(e)
	known := r.known[k]
	if known == nil {
		r.known[k] = &recorded{event: e, last: e.EventTime.Time}
		r.write(ctx, e)
		return
	}
	first := known.event.Series == nil
	if first {
		known.event.Series = &eventsv1.EventSeries{Count: 1}
	}
	known.last = e.EventTime.Time
	known.event.Series.Count++
	known.event.Series.LastObservedTime = e.EventTime
	if known.uncounted = !first; first {
		r.write(ctx, known.event)
	}
}

// settle writes what has been counted, and forgets what has not repeated for long.
func (r *recorder) settle(ctx context.Context) {
	for k, known := range r.known {
		if known.uncounted {
			known.uncounted = false
			r.write(ctx, known.event)
		}
		if time.Since(known.last) >= seriesEvery {
			delete(r.known, k)
		}
	}
}

// write gives up on what the API server refuses, and waits for one that does not answer,
// a while: what is said long after is of no use.
func (r *recorder) write(ctx context.Context, e *eventsv1.Event) {
	var delay pause
	var err error
	for range maxTries {
		if r.muted.Load() {
			return
		}
		err = r.writeOnce(ctx, e)
		if err == nil || ctx.Err() != nil {
			return
		}
		if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown && !isBusy(err) {
			break
		}
		delay.wait(ctx)
	}
	r.log.Debug("an event is not written", "about", e.Regarding.Name, "reason", e.Reason, "err", err)
}

// isBusy reports whether an answer of the API server means: not now.
func isBusy(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || apierrors.IsInternalError(err)
}

func (r *recorder) writeOnce(ctx context.Context, e *eventsv1.Event) error {
	c := r.clients(e.Namespace)
	if e.Series != nil {
		patch, err := json.Marshal(map[string]any{"series": e.Series})
		if err != nil {
			return fmt.Errorf("count an event: %w", err)
		}
		if _, err = c.Patch(ctx, e.Name, types.MergePatchType, patch, metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
			return err
		}
	}
	_, err := c.Create(ctx, e, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // an attempt before did not hear of its success
	}
	return err
}
