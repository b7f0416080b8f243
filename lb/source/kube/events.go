package kube

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	toolsevents "k8s.io/client-go/tools/events"

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

// events writes events to the API server. It never waits: what is too much is
// dropped, and repetitions are counted in one event. nil writes none.
type events struct {
	log         *slog.Logger
	broadcaster toolsevents.EventBroadcaster
	recorder    toolsevents.EventRecorder
}

func newEvents(k kubernetes.Interface, log *slog.Logger) *events {
	b := toolsevents.NewBroadcaster(&toolsevents.EventSinkImpl{Interface: k.EventsV1()})
	return &events{log: log, broadcaster: b, recorder: b.NewRecorder(scheme.Scheme, reporter)}
}

// start has events written until ctx ends. Those of before are lost.
func (e *events) start(ctx context.Context) {
	if e != nil {
		_ = e.broadcaster.StartRecordingToSinkWithContext(withClientLog(ctx, e.log)) // it cannot fail: there is a handler
	}
}

// run reports the start of the node when it has begun, and ends with ctx.
func (e *events) run(ctx context.Context, node string, begun <-chan struct{}) {
	if e == nil {
		return
	}
	defer e.broadcaster.Shutdown()
	select {
	case <-begun:
	case <-ctx.Done():
		return
	}
	// The UID is the name, as kube-proxy and the kubelet have it.
	e.write(&corev1.ObjectReference{Kind: kindNode, Name: node, UID: types.UID(node)}, nil,
		corev1.EventTypeNormal, reasonStarting, "StartBaton", "baton is the service proxy of this node")
	<-ctx.Done()
}

// fault reports a fault at the Service that it concerns.
func (e *events) fault(f Fault, uid types.UID) {
	if e == nil || f.Service == "" {
		return
	}
	var related runtime.Object
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

func (e *events) write(about *corev1.ObjectReference, related runtime.Object, kind, reason, action, note string) {
	if len(note) > maxNote {
		note = note[:maxNote-len("...")] + "..."
	}
	e.recorder.Eventf(about, related, kind, reason, action, "%s", note)
}

func serviceRef(service string, uid types.UID) *corev1.ObjectReference {
	k := objectOf(service)
	return &corev1.ObjectReference{Kind: kindService, APIVersion: "v1", Namespace: k.Namespace, Name: k.Name, UID: uid}
}
