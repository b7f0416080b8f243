package kube

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseManifest(t *testing.T) {
	const svc = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"ports":[{"port":80}]}}`
	for _, tc := range []struct {
		name, text string
		objects    string   // services, slices, nodes
		faults     []string // a part of each
	}{
		{"nothing", "", "0 0 0", nil},
		{"only comments", "# a\n---\n# b\n", "0 0 0", nil},
		{"JSON", svc, "1 0 0", nil},
		{"documents", "kind: Service\napiVersion: v1\nmetadata: {name: a}\n---\nkind: Node\napiVersion: v1\nmetadata: {name: node}\n", "1 0 1", nil},
		{"list", `{"apiVersion":"v1","kind":"List","items":[` + svc + `,` + svc + `]}`, "2 0 0", nil},
		{"list of a kind", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSliceList\nitems: [{metadata: {name: a}}, {metadata: {name: b}}]\n", "0 2 0", nil},
		{"list in a list", `{"kind":"List","items":[{"kind":"List","items":[` + svc + `]}]}`, "1 0 0", nil},
		{"other kinds", "kind: Pod\napiVersion: v1\nmetadata: {name: a}\n---\nkind: Endpoints\napiVersion: v1\nmetadata: {name: a}\n", "0 0 0", nil},
		{"no name", "kind: Service\napiVersion: v1\n", "0 0 0", []string{"Service default/: metadata.name: is missing"}},
		{"wrong type", "kind: Service\napiVersion: v1\nmetadata: {name: a}\nspec: {ports: [{port: eighty}]}\n---\n" + svc, "1 0 0",
			[]string{"Service default/a: spec.ports.port: string is no value for it"}},
		{"a name that YAML takes for a truth", "kind: Service\napiVersion: v1\nmetadata: {name: yes}\n---\n" + svc, "1 0 0",
			[]string{"metadata.name: bool is no value for it"}},
		{"item of no kind", `{"kind":"List","items":[3,` + svc + `]}`, "1 0 0", []string{"items: has what is no object"}},
		{"old slices", "kind: EndpointSlice\napiVersion: discovery.k8s.io/v1beta1\nmetadata: {name: a, namespace: x}\n", "0 0 0",
			[]string{`EndpointSlice x/a: apiVersion: "discovery.k8s.io/v1beta1" is not read: use discovery.k8s.io/v1`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := parseManifest("f", []byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(len(m.services), len(m.slices), len(m.nodes)); got != tc.objects {
				t.Errorf("%s, want %s", got, tc.objects)
			}
			if len(m.faults) != len(tc.faults) {
				t.Fatalf("faults %v, want %q", m.faults, tc.faults)
			}
			for i, want := range tc.faults {
				if got := m.faults[i].Error(); !strings.Contains(got, want) {
					t.Errorf("fault %q, want %q", got, want)
				}
			}
		})
	}
	for _, text := range []string{"a: [", "just words", "[1, 2]", `{"kind":`, "kind: Service\napiVersion: v1\n---\n\tx"} {
		if _, err := parseManifest("f", []byte(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(webYAML("10.244.1.2")))
	f.Add([]byte(`{"kind":"List","items":[{"kind":"Service","apiVersion":"v1","metadata":{"name":"a"}},{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseManifest("f", text)
		if err != nil {
			return
		}
		for _, s := range m.services {
			if s.Name == "" {
				t.Error("a Service without a name")
			}
			ReadService(s)
		}
		for _, s := range m.slices {
			ReadSlice(s)
		}
		for _, n := range m.nodes {
			ReadNode(n)
		}
	})
}
