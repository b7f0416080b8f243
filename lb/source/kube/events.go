package kube

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/baton-lb/baton/lb/store"
)

// reporter is who reports events.
const reporter = "baton"

// Reasons of events.
const (
	reasonStarting = "Starting"       // of a node
	reasonFaulty   = "FaultyObject"   // of a Service, or a slice of it
	reasonFailed   = "FrontendFailed" // of a Service
	actionServe    = "Serve"
)

// events says in the API server what has begun and what is wrong. It never waits: what
// is too much is dropped, and repetitions are counted in one event. nil says nothing.
type events struct{ recorder *recorder }

func newEvents(clients func(namespace string) eventWriter, log *slog.Logger) *events {
	return &events{recorder: newRecorder(clients, log)}
}

// run writes events until ctx ends, and reports the start of the node when it has begun.
func (e *events) run(ctx context.Context, node string, begun <-chan struct{}) {
	if e == nil {
		return
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() { e.recorder.run(ctx) })
	select {
	case <-begun:
	case <-ctx.Done():
		return
	}
	// The UID is the name, as kube-proxy and the kubelet have it.
	e.write(&corev1.ObjectReference{Kind: kindNode, Name: node, UID: types.UID(node)}, nil,
		corev1.EventTypeNormal, reasonStarting, "StartBaton", "baton is the service proxy of this node")
}

// mute has nothing said any more.
func (e *events) mute() {
	if e != nil {
		e.recorder.muted.Store(true)
	}
}

// fault reports a fault at the Service that it concerns.
func (e *events) fault(f Fault, uid types.UID) {
	if e == nil || f.Service == "" {
		return
	}
	var related *corev1.ObjectReference
	text := f.Field + ": " + f.Problem
	if f.Kind != kindService {
		related = &corev1.ObjectReference{Kind: f.Kind, APIVersion: sliceVersion, Namespace: f.Namespace, Name: f.Name, UID: types.UID(f.UID)}
		text = fmt.Sprintf("%s %s: %s", f.Kind, f.Name, text)
	}
	e.write(serviceRef(f.Service, uid), related, corev1.EventTypeWarning, reasonFaulty, actionServe, text)
}

// failure reports a frontend that cannot be served.
func (e *events) failure(f store.Failure, uid types.UID) {
	if e == nil {
		return
	}
	e.write(serviceRef(f.Service, uid), nil, corev1.EventTypeWarning, reasonFailed, actionServe, f.Error())
}

// maxNote is the longest note that the API takes, in bytes.
const maxNote = 1024

func (e *events) write(about, related *corev1.ObjectReference, kind, reason, action, note string) {
	if len(note) > maxNote {
		note = note[:maxNote-len("...")] + "..."
	}
	e.recorder.record(about, related, kind, reason, action, note)
}

func serviceRef(service string, uid types.UID) *corev1.ObjectReference {
	k := objectOf(service)
	return &corev1.ObjectReference{Kind: kindService, APIVersion: "v1", Namespace: k.Namespace, Name: k.Name, UID: uid}
}
