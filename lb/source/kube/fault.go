package kube

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fault is something that is wrong with an object. The rest of it is served.
type Fault struct {
	Kind, Namespace, Name, UID string // of the object

	Service string // "namespace/name" of the Service that it concerns
	Field   string // as a Kubernetes path: "spec.externalIPs[0]"
	Problem string
}

func (f Fault) Error() string {
	return fmt.Sprintf("%s %s/%s: %s: %s", f.Kind, f.Namespace, f.Name, f.Field, f.Problem)
}

// Object is the object of the fault.
func (f Fault) Object() Object { return Object{f.Kind, f.Namespace, f.Name} }

// Object names an object.
type Object struct{ Kind, Namespace, Name string }

func (o Object) String() string { return o.Kind + " " + o.Namespace + "/" + o.Name }

// The kinds of objects that have faults.
const (
	kindService = "Service"
	kindSlice   = "EndpointSlice"
)

// maxFaults is how many faults of one object are told one by one.
const maxFaults = 10

// faults collects what is wrong with one object.
type faults struct {
	object Fault // all but Field and Problem
	list   []Fault
	more   int
}

func newFaults(kind string, m *metav1.ObjectMeta, service string) faults {
	return faults{object: Fault{Kind: kind, Namespace: m.Namespace, Name: m.Name, UID: string(m.UID), Service: service}}
}

func (f *faults) add(field, format string, args ...any) {
	if len(f.list) == maxFaults {
		f.more++
		return
	}
	x := f.object
	x.Field, x.Problem = field, fmt.Sprintf(format, args...)
	f.list = append(f.list, x)
}

// all returns the faults, and how many more there are.
func (f *faults) all() []Fault {
	if f.more == 0 {
		return f.list
	}
	x := f.object
	x.Field, x.Problem = "metadata.name", fmt.Sprintf("there are %d more faults", f.more)
	return append(f.list, x)
}
