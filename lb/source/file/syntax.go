package file

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// searchBytes bounds what is parsed again to find the line of a syntax error.
const searchBytes = 32 << 20

const empty = "the file is empty: it needs at least \"services: []\""

// readTree parses the one YAML document of a file. Without a fault the result is
// a map.
func readTree(name string, data []byte) (*node, *Fault) {
	fault := func(line int, message string) *Fault {
		return &Fault{File: name, Line: max(line, 1), Message: message}
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, fault(1, empty)
	case err != nil:
		return nil, fault(syntaxLine(data, err))
	}
	switch err := dec.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		return nil, fault(syntaxLine(data, err))
	default:
		return nil, fault(second.Line, "a second document starts here: the file must be one")
	}
	if len(doc.Content) != 1 {
		return nil, fault(1, empty)
	}
	root := doc.Content[0]
	switch {
	case isScalar(root, "!!null"):
		return nil, fault(1, empty)
	case root.Kind != yaml.MappingNode:
		return nil, fault(root.Line, "the file is "+kindOf(root)+", not a map with services: and the other keys")
	}
	return root, nil
}

// syntaxLine finds the line of a syntax error and words it. The parser's own
// line is that of the enclosing block or one off, depending on which of its
// layers complains. Here it is the line after the longest run of first lines
// that parse: where an unclosed quote or bracket opens, or where a block goes
// wrong.
func syntaxLine(data []byte, err error) (int, string) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	if len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	fed := &lineReader{lines: lines}
	err = cmp.Or(parseAll(fed), err)
	line := fed.next
	end := 0
	for _, l := range lines[:line] {
		end += len(l)
	}
	for budget := searchBytes; line > 1 && budget > 0; line-- {
		end -= len(lines[line-1])
		if budget -= end; parseAll(bytes.NewReader(data[:end])) == nil {
			break
		}
	}
	return line, syntaxMessage(err, lines, line)
}

func syntaxMessage(err error, lines [][]byte, line int) string {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(msg, "line "); ok {
		if _, after, ok := strings.Cut(rest, ": "); ok {
			msg = after
		}
	}
	if line >= 1 && line <= len(lines) {
		indent := lines[line-1][:len(lines[line-1])-len(bytes.TrimLeft(lines[line-1], " \t"))]
		if bytes.IndexByte(indent, '\t') >= 0 {
			return "not YAML: a tab cannot indent, use spaces"
		}
	}
	return "not YAML: " + msg
}

// parseAll reads every document and drops it.
func parseAll(r io.Reader) error {
	dec := yaml.NewDecoder(r)
	for {
		var n yaml.Node
		switch err := dec.Decode(&n); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// lineReader hands out one line a Read, so that next tells how far a parser came.
type lineReader struct {
	lines [][]byte
	next  int // index of the first line not handed out in full
	off   int // in that line
}

func (r *lineReader) Read(p []byte) (int, error) {
	if r.next == len(r.lines) {
		return 0, io.EOF
	}
	n := copy(p, r.lines[r.next][r.off:])
	if r.off += n; r.off == len(r.lines[r.next]) {
		r.next, r.off = r.next+1, 0
	}
	return n, nil
}
