package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// intake is where a reflector puts the objects of one kind. Of each what is wanted is read
// at once and goes on, and nothing is kept but the name: the objects live once, in the
// Translator.
type intake struct {
	read     func(object any) any                     // what is wanted of an object
	put      func(k types.NamespacedName, wanted any) // nil = it is gone
	replaced func()                                   // all that there is has been put, at the start and after an outage
	filled   func()                                   // the same, the first time

	known map[types.NamespacedName]struct{}
	full  bool
}

var _ cache.TransformingStore = (*intake)(nil)

// gist is what is wanted of an object, in the object's place while more of them come.
type gist struct {
	name   types.NamespacedName
	wanted any
}

var _ runtime.Object = (*gist)(nil)

// GetObjectKind implements runtime.Object.
func (g *gist) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Nobody changes one.
func (g *gist) DeepCopyObject() runtime.Object { return g }

func (in *intake) gist(object any) (*gist, error) {
	if g, ok := object.(*gist); ok {
		return g, nil
	}
	k, err := nameOf(object)
	if err != nil {
		return nil, err
	}
	return &gist{name: k, wanted: in.read(object)}, nil
}

// Transformer implements cache.TransformingStore: a kind may be large, and streams in.
func (in *intake) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return in.gist(object) }
}

// page is a page of a list, of each object what is wanted.
func (in *intake) page(list runtime.Object) (runtime.Object, error) {
	from, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("read a list: %w", err)
	}
	to := &metav1.List{ListMeta: metav1.ListMeta{
		ResourceVersion: from.GetResourceVersion(), Continue: from.GetContinue(), RemainingItemCount: from.GetRemainingItemCount(),
	}}
	err = meta.EachListItem(list, func(object runtime.Object) error {
		g, err := in.gist(object)
		to.Items = append(to.Items, runtime.RawExtension{Object: g})
		return err
	})
	return to, err
}

// Add implements cache.ReflectorStore.
func (in *intake) Add(object any) error { return in.Update(object) }

// Update implements cache.ReflectorStore.
func (in *intake) Update(object any) error {
	g, err := in.gist(object)
	if err != nil {
		return err
	}
	in.note(g.name)
	in.put(g.name, g.wanted)
	return nil
}

// Delete implements cache.ReflectorStore.
func (in *intake) Delete(object any) error {
	k, err := nameOf(object)
	if err != nil {
		return err
	}
	delete(in.known, k)
	in.put(k, nil)
	return nil
}

// Replace implements cache.ReflectorStore: after an outage it is how one hears of
// what has gone meanwhile.
func (in *intake) Replace(objects []any, _ string) error {
	before := in.known
	in.known = make(map[types.NamespacedName]struct{}, len(objects))
	for _, object := range objects {
		g, err := in.gist(object)
		if err != nil {
			return err
		}
		in.note(g.name)
		in.put(g.name, g.wanted)
	}
	for k := range before {
		if _, still := in.known[k]; !still {
			in.put(k, nil)
		}
	}
	in.replaced()
	if !in.full {
		in.full = true
		in.filled()
	}
	return nil
}

// Resync implements cache.ReflectorStore. Nothing gets lost that could be synced
// again.
func (in *intake) Resync() error { return nil }

func (in *intake) note(k types.NamespacedName) {
	if in.known == nil {
		in.known = make(map[types.NamespacedName]struct{})
	}
	in.known[k] = struct{}{}
}

func nameOf(object any) (types.NamespacedName, error) {
	m, err := meta.Accessor(object)
	if err != nil {
		return types.NamespacedName{}, fmt.Errorf("read the name of an object: %w", err)
	}
	return types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}, nil
}
