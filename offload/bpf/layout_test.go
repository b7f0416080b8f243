package bpf

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// layouts is the shape of what is pinned, for each layout that has been. One more bit of what is seen that means something
// only to the process that holds the gate asks for no other layout.
var layouts = map[int]string{1: "04d6e4d0bfc631f8", 2: "791b09c1192b6c4b", 3: "d04958ca8c5a4100"}

// TestLayoutHasItsShape: flows of one build are adopted by the next when both say the same layout, so a change of shape asks
// for another number.
func TestLayoutHasItsShape(t *testing.T) {
	shape := pinnedShape(t)
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(shape)))[:16]
	if want := layouts[flowsLayout]; sum != want {
		t.Errorf("what is pinned has shape %s, layout %d has %q: raise flowsLayout if flows of the old shape may be in "+
			"somebody's kernel, and write the new one down here.\n%s", sum, flowsLayout, want, shape)
	}
}

// pinnedShape says of every map that is pinned what is in it.
func pinnedShape(t *testing.T) string {
	t.Helper()
	spec, err := loadFlow()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(spec.Maps)) {
		if name == flowMapFlowScratch || name == flowMapSteerOrder {
			continue
		}
		m := spec.Maps[name]
		fmt.Fprintf(&b, "%s: %s, flags %d, key %s, value %s\n", name, m.Type, m.Flags, typeShape(m.Key), typeShape(m.Value))
	}
	return b.String()
}

// typeShape writes a type down with the offsets of its members.
func typeShape(t btf.Type) string {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		var members []string
		for _, m := range t.Members {
			members = append(members, fmt.Sprintf("%s@%d %s", m.Name, m.Offset.Bytes(), typeShape(m.Type)))
		}
		return "{" + strings.Join(members, ", ") + "}"
	case *btf.Array:
		return fmt.Sprintf("[%d]%s", t.Nelems, typeShape(t.Type))
	case *btf.Enum:
		var values []string
		for _, v := range t.Values {
			values = append(values, fmt.Sprintf("%s=%d", v.Name, v.Value))
		}
		return "enum(" + strings.Join(values, " ") + ")"
	case *btf.Int:
		return t.Name
	case nil, *btf.Void:
		return "none"
	default:
		return t.TypeName()
	}
}
