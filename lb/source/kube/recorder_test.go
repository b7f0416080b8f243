package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// eventLog is an API server that writes down what it is told, or fails.
type eventLog struct {
	mu     sync.Mutex // guards what follows
	told   []string
	fails  []error // of the next calls; nil = it works
	failed int
}

func (l *eventLog) tell(format string, args ...any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.fails) > 0 {
		err := l.fails[0]
		l.fails = l.fails[1:]
		if err != nil {
			l.failed++
			return err
		}
	}
	l.told = append(l.told, fmt.Sprintf(format, args...))
	return nil
}

func (l *eventLog) Create(_ context.Context, e *eventsv1.Event, _ metav1.CreateOptions) (*eventsv1.Event, error) {
	return e, l.tell("%s in %s about %s", e.Note, e.Namespace, e.Regarding.Name)
}

func (l *eventLog) Patch(_ context.Context, _ string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*eventsv1.Event, error) {
	count, _, _ := strings.Cut(string(data), ",")
	return nil, l.tell("%s", count)
}

func TestRecorder(t *testing.T) {
	web := &corev1.ObjectReference{Kind: kindService, Namespace: "shop", Name: "web"}
	node := &corev1.ObjectReference{Kind: kindNode, Name: strings.Repeat("n", maxName)}
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, "web")
	note := func(r *recorder, about *corev1.ObjectReference, text string) {
		r.record(about, nil, corev1.EventTypeWarning, reasonFailed, actionServe, text)
		synctest.Wait()
	}
	for _, tt := range []struct {
		name   string
		fails  []error
		what   func(r *recorder)
		want   []string
		failed int
	}{
		{"one", nil, func(r *recorder) { note(r, web, "taken") }, []string{"taken in shop about web"}, 0},
		{"of no namespace, with a long name", nil, func(r *recorder) { note(r, node, "begun") }, []string{"begun in default about " + node.Name}, 0},
		{"two that differ", nil, func(r *recorder) { note(r, web, "a"); note(r, web, "b") }, []string{"a in shop about web", "b in shop about web"}, 0},
		{"a second time at once, more only now and then", nil, func(r *recorder) {
			for range 5 {
				note(r, web, "a")
			}
		}, []string{"a in shop about web", `{"series":{"count":2`, `{"series":{"count":5`}, 0},
		{"the first is gone", []error{nil, gone}, func(r *recorder) { note(r, web, "a"); note(r, web, "a") },
			[]string{"a in shop about web", "a in shop about web"}, 1},
		{"nobody answers for a while", []error{errors.New("refused"), apierrors.NewTooManyRequestsError("later")},
			func(r *recorder) { note(r, web, "a") }, []string{"a in shop about web"}, 2},
		{"it is refused", []error{apierrors.NewForbidden(schema.GroupResource{}, "web", nil)},
			func(r *recorder) { note(r, web, "a"); note(r, web, "b") }, []string{"b in shop about web"}, 1},
		{"it is mute from then on", nil, func(r *recorder) { note(r, web, "a"); r.muted.Store(true); note(r, web, "a"); note(r, web, "b") },
			[]string{"a in shop about web"}, 0},
		{"it was written, and the answer lost", []error{errors.New("reset"), apierrors.NewAlreadyExists(schema.GroupResource{}, "web")},
			func(r *recorder) { note(r, web, "a") }, nil, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &eventLog{fails: tt.fails}
				r := newRecorder(func(string) eventWriter { return api }, slog.New(slog.DiscardHandler))
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { r.run(ctx) })
				tt.what(r)
				time.Sleep(2 * seriesEvery) // of the bubble's time
				synctest.Wait()
				if len(r.known) > 0 {
					t.Errorf("%d are remembered for ever", len(r.known))
				}
				if got := strings.Join(api.told, "\n"); got != strings.Join(tt.want, "\n") || api.failed != tt.failed {
					t.Errorf("after %d failures it was told\n%s", api.failed, got)
				}
				stop()
				running.Wait()
			})
		})
	}
}
