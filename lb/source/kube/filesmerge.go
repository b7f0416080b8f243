package kube

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// merge joins the files. An object that two have is the first one's.
func (f *files) merge(list []string, faults map[string][]Fault) (now map[Object]any, origin map[Object]string) {
	now, origin = make(map[Object]any), make(map[Object]string)
	for _, path := range list {
		r := f.read[path]
		if r == nil {
			continue
		}
		for _, o := range r.objects {
			if _, there := now[o.name]; there {
				first := origin[o.name]
				fault := Fault{Kind: o.name.Kind, Namespace: o.name.Namespace, Name: o.name.Name, Field: "metadata.name"}
				fault.Problem = fmt.Sprintf("is in %s already: the one in %s is not read", first, path)
				faults[path] = append(slices.Clip(faults[path]), fault)
				continue
			}
			now[o.name], origin[o.name] = o.value, path
		}
		for _, bad := range r.faults {
			if _, there := origin[bad.Object()]; !there {
				origin[bad.Object()] = path
			}
		}
	}
	return now, origin
}

// tell tells the queue what differs from what it knows.
func (f *files) tell(s *Source, now map[Object]any, faults map[string][]Fault, asked bool) {
	counts := map[string]int{kindService: 0, kindSlice: 0, kindNode: 0}
	s.queue.add(func(b *batch) {
		b.reloaded = b.reloaded || asked
		for path, list := range faults {
			b.faults[path] = list
		}
		for o, value := range now {
			counts[o.Kind]++
			if f.known[o] != value {
				f.put(s, b, o, value)
			}
		}
		for o := range f.known {
			if _, still := now[o]; !still {
				f.put(s, b, o, nil)
			}
		}
	})
	f.known = now
	for kind, n := range counts {
		s.count(kind, n)
	}
}

// put has one object taken next; nil = it is gone.
func (f *files) put(s *Source, b *batch, o Object, value any) {
	k := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	switch o.Kind {
	case kindService:
		svc, _ := value.(*Service)
		b.setService(k, svc)
	case kindSlice:
		slice, _ := value.(*Slice)
		b.setSlice(k, slice)
	case kindNode:
		if n, ok := value.(ownNode); ok {
			b.node = n.Node
			s.setLeaving(n.leaving)
		}
	}
}
