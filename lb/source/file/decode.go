package file

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/baton-lb/baton/lb"
)

// maxAliased bounds what aliases may add to the values that the file spells out.
const maxAliased = 1 << 20

// Short names for what nearly every function here takes.
type (
	node    = yaml.Node
	service = lb.Service
)

// decoder walks a tree of YAML nodes and collects faults. It never stops at one.
type decoder struct {
	file   string
	faults Faults

	scope string          // "service web", "defaults" or ""
	path  []step          // below the scope
	wrong map[string]bool // paths of this scope that have a fault of their own

	budget int // values that may still be visited; below 0 = stop
}

// step is one part of a path: a key, or an index when key is "".
type step struct {
	key   string
	index int
}

// field is a key of a map and what to do with its value.
type field[T any] struct {
	key string
	set func(d *decoder, n *node, to *T)
}

// enter starts a new scope, such as a service.
func (d *decoder) enter(scope string) {
	d.scope, d.path, d.wrong = scope, d.path[:0], nil
}

func (d *decoder) pathString() string {
	var b strings.Builder
	for _, s := range d.path {
		switch {
		case s.key == "":
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case b.Len() > 0:
			b.WriteString("." + s.key)
		default:
			b.WriteString(s.key)
		}
	}
	return b.String()
}

// fault says that the value at the current path is wrong.
func (d *decoder) fault(n *node, format string, args ...any) {
	at := d.pathString()
	if d.wrong == nil {
		d.wrong = map[string]bool{}
	}
	d.wrong[at] = true
	d.report(n.Line, at, fmt.Sprintf(format, args...), nil)
}

// report adds a fault in the current scope.
func (d *decoder) report(line int, at, message string, err error) {
	var parts []string
	for _, p := range []string{d.scope, at, message} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	d.faults = append(d.faults, &Fault{File: d.file, Line: max(line, 1), Message: strings.Join(parts, ": "), Err: err})
}

// value follows an alias and refuses a missing value; nil = nothing to decode.
func (d *decoder) value(n *node) *node {
	if d.budget < 0 {
		return nil
	}
	if d.budget--; d.budget < 0 {
		d.fault(n, "aliases make the file too large: more than %d values through them", maxAliased)
		return nil
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		d.fault(n, "has no value")
		return nil
	}
	return n
}

// decodeMap gives each value of a map to the field of its key.
func decodeMap[T any](d *decoder, n *node, fields []field[T], to *T) {
	if n.Kind != yaml.MappingNode {
		d.fault(n, "is %s, not a map of keys and values", kindOf(n))
		return
	}
	var lines [32]int // of the key that was seen for each field
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		at := findField(fields, k)
		if at < 0 {
			d.report(k.Line, d.pathString(), unknownKey(k, fields), nil)
			continue
		}
		d.path = append(d.path, step{key: k.Value})
		if lines[at] != 0 {
			d.report(k.Line, d.pathString(), fmt.Sprintf("is set already at line %d", lines[at]), nil)
		}
		lines[at] = k.Line
		if v = d.value(v); v != nil {
			fields[at].set(d, v, to)
		}
		d.path = d.path[:len(d.path)-1]
	}
}

func findField[T any](fields []field[T], k *node) int {
	if k.Kind != yaml.ScalarNode {
		return -1
	}
	for i := range fields {
		if fields[i].key == k.Value {
			return i
		}
	}
	return -1
}

func unknownKey[T any](k *node, fields []field[T]) string {
	switch {
	case k.Kind != yaml.ScalarNode:
		return "a key is " + kindOf(k) + ", not a plain word"
	case k.ShortTag() == "!!merge":
		return "the merge key << is not supported: put what services share under defaults"
	}
	known := make([]string, len(fields))
	for i := range fields {
		known[i] = fields[i].key
	}
	if near := nearest(k.Value, known); near != "" {
		return fmt.Sprintf("unknown key %q: did you mean %q?", k.Value, near)
	}
	return fmt.Sprintf("unknown key %q", k.Value)
}

// decodeList decodes each item of a list. One that cannot be read leaves its
// zero value, so that the indexes of the others stay those of the file.
func decodeList[T any](d *decoder, n *node, item func(d *decoder, n *node, to *T)) []T {
	if n.Kind != yaml.SequenceNode {
		d.fault(n, "is %s, not a list: write [a, b] or one \"- a\" a line", kindOf(n))
		return nil
	}
	if len(n.Content) == 0 {
		return nil
	}
	list := make([]T, 0, min(len(n.Content), max(d.budget, 0)))
	for i, v := range n.Content {
		if d.budget < 0 {
			break
		}
		var one T
		d.path = append(d.path, step{index: i})
		if v = d.value(v); v != nil {
			item(d, v, &one)
		}
		d.path = d.path[:len(d.path)-1]
		list = append(list, one)
	}
	return list
}
