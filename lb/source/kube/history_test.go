package kube

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/baton-lb/baton/lb"
)

// Whatever the order in which objects come, change and go: what is served is what
// those that are there make.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			w, last := newWorld(t, Options{}), map[string]any{}
			for range 40 {
				w.happen(r, last)
				if r.IntN(3) == 0 {
					w.check(w.take())
				}
			}
			w.check(w.take())
			w.compareWithFresh(Options{}, last)
			w.empty(last)
		})
	}
}

// happen changes or takes away one of a few objects that get in each other's way.
func (w *world) happen(r *rand.Rand, last map[string]any) {
	one := func(words ...string) string { return words[r.IntN(len(words))] }
	svc, eps := one("a", "b", "c"), one("one", "two", "three", "four")
	switch r.IntN(6) {
	case 0, 1:
		s := service(svc, fmt.Sprintf("type: NodePort, %s, externalIPs: [%s], %s, ports: [{name: x, port: %s, nodePort: %s}, {name: y, port: %s, protocol: %s}]",
			one("clusterIP: 10.96.0.1", "clusterIPs: [10.96.0.2, 'fd96::2']", "clusterIP: None", "clusterIP: 10.96.0.3"),
			one("198.51.100.1", "198.51.100.2", "bad", ""),
			one("externalTrafficPolicy: Local", "internalTrafficPolicy: Local", "sessionAffinity: ClientIP"),
			one("80", "81"), one("30080", "30081", "0"), one("80", "81"), one("TCP", "UDP", "SCTP")))
		w.set(s)
		last["s "+svc] = s
	case 2:
		w.DeleteService("default", svc)
		delete(last, "s "+svc)
	case 3, 4:
		var list []string
		for range r.IntN(4) {
			list = append(list, one("10.244.1.2 a", "10.244.1.3 a zone=z1", "10.244.2.2 b zone=z1", "10.244.2.2 b zone=z2 node=b", "10.244.2.3 b node=a", "bad", "127.0.0.1")+
				one("", "", " terminating", " gone", " notready"))
		}
		s := slice(eps, svc, one("x 8080", "x 8080, y 9090 UDP", "y 9090"), list...)
		w.set(s)
		last["e "+eps] = s
	case 5:
		w.DeleteSlice("default", eps)
		delete(last, "e "+eps)
	}
}

// compareWithFresh holds what is served, and what is wrong, to what a fresh
// translator makes of the objects that there are.
func (w *world) compareWithFresh(o Options, last map[string]any) {
	w.t.Helper()
	fresh := newWorld(w.t, o)
	for _, x := range last { // in no order
		fresh.set(x)
	}
	fresh.check(fresh.take())
	if a, b := w.lines(), fresh.lines(); !slices.Equal(sortedWords(a), sortedWords(b)) {
		w.t.Errorf("after its history:\n%s\nas it is:\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
	if a, b := w.faultLines(), fresh.faultLines(); !slices.Equal(a, b) {
		w.t.Errorf("faults after its history:\n%s\nas it is:\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
}

// check holds a Take to the model.
func (w *world) check(c Changes) {
	seen := map[string]bool{}
	for i := range c.Upsert {
		s := &c.Upsert[i]
		if err := s.Validate(); err != nil {
			w.t.Errorf("%s: %v", s.Name, err)
		}
		if seen[s.Name] || slices.Contains(c.Delete, s.Name) {
			w.t.Errorf("%s is there twice", s.Name)
		}
		seen[s.Name] = true
	}
	asked := map[lb.FrontendKey]string{}
	for s := range w.store.Snapshot().Services() {
		for i := range s.Frontends {
			k := s.Frontends[i].FrontendKey
			if asked[k] != "" {
				w.t.Errorf("%s is that of %s and of %s", k, asked[k], s.Name)
			}
			asked[k] = s.Name
		}
	}
}

// empty takes everything away: nothing must be left.
func (w *world) empty(last map[string]any) {
	for _, x := range last {
		switch x := x.(type) {
		case *corev1.Service:
			w.DeleteService(x.Namespace, x.Name)
		case *discoveryv1.EndpointSlice:
			w.DeleteSlice(x.Namespace, x.Name)
		}
	}
	w.take()
	if n := len(w.entries) + len(w.slices) + len(w.claims.owners) + len(w.claims.contested) + len(w.standing) + len(w.touched) + len(w.faults); n > 0 {
		w.t.Errorf("%d things are kept: %v", n, slices.Collect(maps.Keys(w.entries)))
	}
	if s := w.lines(); s[0] != "" {
		w.t.Errorf("still served: %q", s)
	}
}

// sortedWords makes lines comparable in which backends may stand in any order.
func sortedWords(lines []string) (all []string) {
	for _, l := range lines {
		words := strings.Fields(l)
		slices.Sort(words)
		all = append(all, strings.Join(words, " "))
	}
	return all
}
