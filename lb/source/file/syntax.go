package file

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// searchBytes bounds what is parsed again to find the line of a syntax error.
const searchBytes = 4 << 20

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
	p := newFirstLines(data)
	fed := &lineReader{lines: p.lines}
	err = cmp.Or(parseAll(fed), err)
	said, message := takeLine(err)
	line := p.search(fed.next, said)
	return line, syntaxMessage(message, p.lines, line)
}

// firstLines parses the first lines of a file, within a budget of bytes.
type firstLines struct {
	data   []byte
	lines  [][]byte
	ends   []int // of so many lines
	budget int
}

func newFirstLines(data []byte) *firstLines {
	p := &firstLines{data: data, lines: bytes.SplitAfter(data, []byte("\n")), budget: searchBytes}
	if last := len(p.lines) - 1; len(p.lines[last]) == 0 {
		p.lines = p.lines[:last]
	}
	p.ends = make([]int, 1, len(p.lines)+1)
	for _, l := range p.lines {
		p.ends = append(p.ends, p.ends[len(p.ends)-1]+len(l))
	}
	return p
}

// parse reports whether the first n lines are YAML.
func (p *firstLines) parse(n int) bool {
	p.budget -= p.ends[n]
	return n <= 0 || parseAll(bytes.NewReader(p.data[:p.ends[n]])) == nil
}

// search finds the line, knowing that the first high lines do not parse and that
// the parser named the line said (or 0). It tries the nearest lines, then what
// the parser said, then goes back ever faster, and halves what is left. Without
// budget it is high, which is rarely more than two off.
func (p *firstLines) search(high, said int) int {
	if high <= 1 || p.parse(high-1) {
		return high
	}
	high--
	for _, l := range []int{max(said, 1), said + 1} {
		if l < high && p.budget > 2*p.ends[l] && p.parse(l-1) && !p.parse(l) {
			return l
		}
	}
	low := high
	for back := 1; low > 0; back *= 2 {
		if low = max(high-back, 0); p.budget < p.ends[low] || p.parse(low) {
			break
		}
		high = low
	}
	for high-low > 1 && p.budget > p.ends[high] {
		if mid := (low + high) / 2; p.parse(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// takeLine splits "yaml: line 5: message".
func takeLine(err error) (line int, message string) {
	message = strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		if number, after, ok := strings.Cut(rest, ": "); ok {
			line, _ = strconv.Atoi(number)
			message = after
		}
	}
	return line, message
}

func syntaxMessage(message string, lines [][]byte, line int) string {
	if line >= 1 && line <= len(lines) {
		indent := lines[line-1][:len(lines[line-1])-len(bytes.TrimLeft(lines[line-1], " \t"))]
		if bytes.IndexByte(indent, '\t') >= 0 {
			return "not YAML: a tab cannot indent, use spaces"
		}
	}
	return "not YAML: " + message
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
