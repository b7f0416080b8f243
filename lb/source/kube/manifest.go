package kube

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// manifest is what one file of objects says.
type manifest struct {
	services []*corev1.Service
	slices   []*discoveryv1.EndpointSlice
	nodes    []*corev1.Node
	faults   []Fault // of objects that cannot be read
}

// maxDepth is how deep lists may stand in lists.
const maxDepth = 8

// header is what all objects have, and lists.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// parseManifest reads objects in YAML or JSON, one or many, lists of them too. An
// object that cannot be read is a fault; the error is for what is neither YAML nor
// JSON, and then nothing of the file is known.
func parseManifest(file string, text []byte) (*manifest, error) {
	m := new(manifest)
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for n := 1; ; n++ {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return m, nil
		}
		if err == nil {
			err = m.document(doc)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
	}
}

// document reads one document.
func (m *manifest) document(doc []byte) error {
	if doc = bytes.TrimSpace(doc); len(doc) == 0 {
		return nil
	}
	if doc[0] != '{' {
		var err error
		if doc, err = yaml.YAMLToJSON(doc); err != nil {
			return fmt.Errorf("not YAML: %w", err)
		}
	}
	if bytes.Equal(doc, []byte("null")) {
		return nil
	}
	if doc[0] != '{' {
		return errors.New("not an object of Kubernetes")
	}
	var h header
	err := json.Unmarshal(doc, &h)
	if te := (*json.UnmarshalTypeError)(nil); errors.As(err, &te) { // h has the rest
		m.fault(&h, te.Field, te.Value+" is no value for it: not served")
		return nil
	}
	if err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	m.object(doc, &h, 0)
	return nil
}

// object reads one object, or a list of them. Other kinds than those that matter
// here are passed over: a dump has what it has.
func (m *manifest) object(doc []byte, h *header, depth int) {
	group, _, _ := strings.Cut(h.APIVersion, "/")
	switch {
	case h.Kind == "List" || strings.HasSuffix(h.Kind, "List") && h.Items != nil:
		m.items(h, depth)
	case h.Kind == kindService && h.APIVersion == "v1":
		m.services = decodeInto(m, doc, h, m.services)
	case h.Kind == kindNode && h.APIVersion == "v1":
		m.nodes = decodeInto(m, doc, h, m.nodes)
	case h.Kind == kindSlice && h.APIVersion == sliceVersion:
		m.slices = decodeInto(m, doc, h, m.slices)
	case h.Kind == kindSlice && group == "discovery.k8s.io":
		m.fault(h, "apiVersion", fmt.Sprintf("%q is not read: use %s", h.APIVersion, sliceVersion))
	}
}

// items reads what is in a list. In one of a kind its items need not say theirs.
func (m *manifest) items(list *header, depth int) {
	for _, item := range list.Items {
		var h header
		if err := json.Unmarshal(item, &h); err != nil || depth == maxDepth {
			m.fault(list, "items", "has what is no object")
			continue
		}
		if kind := strings.TrimSuffix(list.Kind, "List"); h.Kind == "" && kind != "" {
			h.Kind, h.APIVersion = kind, list.APIVersion
		}
		m.object(item, &h, depth+1)
	}
}

// decodeInto reads an object to the end of a list, or notes why it cannot be read.
func decodeInto[T any](m *manifest, doc []byte, h *header, list []*T) []*T {
	if h.Metadata.Name == "" {
		m.fault(h, "metadata.name", "is missing")
		return list
	}
	object := new(T)
	err := json.Unmarshal(doc, object)
	if te := (*json.UnmarshalTypeError)(nil); errors.As(err, &te) {
		m.fault(h, te.Field, te.Value+" is no value for it: not served")
		return list
	}
	if err != nil {
		m.fault(h, "", fmt.Sprintf("%s: not served", err))
		return list
	}
	return append(list, object)
}

func (m *manifest) fault(h *header, field, problem string) {
	f := Fault{Kind: h.Kind, Namespace: namespaceOf(h.Kind, h.Metadata.Namespace), Name: h.Metadata.Name, Field: field, Problem: problem}
	if h.Kind == kindService {
		f.Service = keyOf(f.Namespace, f.Name)
	}
	m.faults = append(m.faults, f)
}

// namespaceOf is where an object is that does not say so.
func namespaceOf(kind, namespace string) string {
	if namespace == "" && kind != kindNode {
		return corev1.NamespaceDefault
	}
	return namespace
}
