package kube

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// FuzzTranslator reads a history, one event a line: "s {JSON of a Service}", "e
// {JSON of a slice}", "n {JSON of a Node}", "s- NAMESPACE NAME" and "e- …" for
// deletions, and "." for a Take. It never panics; all that it makes is valid and
// without conflicts; and what is served at the end is what the last objects alone
// make, in whatever order they come.
func FuzzTranslator(f *testing.F) {
	for _, r := range rows {
		f.Add(history(r.objects), len(r.options.NodePortAddresses) > 0)
		f.Add(history(r.objects)+"s- default web\n.\n"+history(r.objects[:1])+"e- default web-1\n", false)
	}
	f.Fuzz(func(t *testing.T, text string, someAddresses bool) {
		var o Options
		if someAddresses {
			o.NodePortAddresses = prefixes("192.0.2.0/24", "127.0.0.0/8")
		}
		w := newWorld(t, o)
		last := map[string]any{}
		for line := range strings.Lines(text) {
			w.event(strings.TrimSpace(line), last)
		}
		w.check(w.take())
		w.compareWithFresh(o, last)
		w.empty(last)
	})
}

// history is a first seed: objects as they come.
func history(objects []any) string {
	var b strings.Builder
	for _, x := range objects {
		kind := "s "
		switch x.(type) {
		case *discoveryv1.EndpointSlice:
			kind = "e "
		case *corev1.Node:
			kind = "n "
		}
		text, _ := json.Marshal(x)
		b.WriteString(kind + string(text) + "\n.\n")
	}
	return b.String()
}

// event does what a line says, and keeps the objects that there are.
func (w *world) event(line string, last map[string]any) {
	kind, rest, _ := strings.Cut(line, " ")
	set := func(x any, key func() string) {
		if json.Unmarshal([]byte(rest), x) == nil && strings.Count(key(), " ")+strings.Count(key(), "/") < 3 { // names are names
			w.set(x)
			last[key()] = x
		}
	}
	switch kind {
	case ".":
		w.check(w.take())
	case "s":
		s := &corev1.Service{}
		set(s, func() string { return "s " + s.Namespace + " " + s.Name })
	case "e":
		s := &discoveryv1.EndpointSlice{}
		set(s, func() string { return "e " + s.Namespace + " " + s.Name })
	case "n":
		set(&corev1.Node{}, func() string { return "n" })
	case "s-":
		namespace, name, _ := strings.Cut(rest, " ")
		w.DeleteService(namespace, name)
		delete(last, "s "+rest)
	case "e-":
		namespace, name, _ := strings.Cut(rest, " ")
		w.DeleteSlice(namespace, name)
		delete(last, "e "+rest)
	}
}
