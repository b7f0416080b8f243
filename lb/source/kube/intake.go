package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// intake is where a reflector puts the objects of one kind. Of each what is wanted
// goes on at once, and nothing is kept but the name: the objects live once, in the
// Translator.
type intake struct {
	put    func(k types.NamespacedName, object any) // nil = it is gone
	filled func()                                   // all that there was has been put; called once

	known map[types.NamespacedName]struct{}
	full  bool
}

var _ cache.ReflectorStore = (*intake)(nil)

// Add implements cache.ReflectorStore.
func (in *intake) Add(object any) error { return in.Update(object) }

// Update implements cache.ReflectorStore.
func (in *intake) Update(object any) error {
	k, err := nameOf(object)
	if err != nil {
		return err
	}
	in.note(k)
	in.put(k, object)
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
	for i, object := range objects {
		k, err := nameOf(object)
		if err != nil {
			return err
		}
		in.note(k)
		in.put(k, object)
		objects[i] = nil // it may be large, and there are many
	}
	for k := range before {
		if _, still := in.known[k]; !still {
			in.put(k, nil)
		}
	}
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
