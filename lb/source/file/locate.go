package file

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// entry finds a key of a map and its value, aliases followed; nil = not there.
func entry(n *node, key string) (k, v *node) {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key && n.Content[i].Kind == yaml.ScalarNode {
			return n.Content[i], deref(n.Content[i+1])
		}
	}
	return nil, nil
}

// child is the value of a key of a map.
func child(n *node, key string) *node {
	_, v := entry(n, key)
	return v
}

func deref(n *node) *node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// locate finds the line of a path such as "backends[3].weight" below n, as far
// as it is there. all reports whether it is there to the end.
func locate(n *node, path string) (line int, all bool) {
	line = n.Line
	for path != "" {
		if rest, ok := strings.CutPrefix(path, "["); ok {
			index, after, _ := strings.Cut(rest, "]")
			i, err := strconv.Atoi(index)
			if err != nil || n.Kind != yaml.SequenceNode || i >= len(n.Content) {
				return line, false
			}
			n, path = deref(n.Content[i]), after
			line = n.Line
			continue
		}
		key, after := nextKey(path)
		k, v := entry(n, key)
		if v == nil {
			return line, false
		}
		n, path = v, after
		line = lineOf(k, v)
	}
	if a := child(n, "address"); a != nil { // what is wrong with a backend as a whole is wrong with its address
		line = a.Line
	}
	return line, true
}

func nextKey(path string) (key, after string) {
	path = strings.TrimPrefix(path, ".")
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		end = len(path)
	}
	return path[:end], path[end:]
}

// lineOf is the line of a value, or of its key where the value is a block that
// begins below it.
func lineOf(k, v *node) int {
	if v.Kind != yaml.ScalarNode && v.Style&yaml.FlowStyle == 0 {
		return k.Line
	}
	return v.Line
}
