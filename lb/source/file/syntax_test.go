package file

import (
	"strings"
	"testing"
)

// Where a syntax error is found in a file that is good around it.
func TestSyntaxLine(t *testing.T) {
	many := strings.Repeat("  - {name: a, frontends: [\n    x, y]}\n", 500) // 1000 lines
	for _, c := range []struct {
		name, before, bad, after string
		line                     int
	}{
		{"quote at the first line", "", "services: \"\n", many, 1},
		{"quote at the second line", "services:\n", "  - \"x\n", many, 2},
		{"quote near the end", "services:\n" + many, "  - \"x\n", "  - y\n", 1002},
		{"quote in the middle", "services:\n" + many, "  - 'x\n", many, 1002},
		{"bracket in the middle", "services:\n" + many, "  - [x\n", many, 1002},
		{"dedent in the middle", "services:\n" + many, " - x\n", many, 1002},
		{"indent in the middle", "services:\n" + many, "      y: x\n", many, 1002},
		{"tab in the middle", "services:\n" + many, "\t- x\n", many, 1002},
		{"unknown anchor in the middle", "services:\n" + many, "  - *x\n", many, 1002},
		{"control character in the middle", "services:\n" + many, "  - \x02\n", many, 1002},
		{"text after the end", "services:\n" + many + "...\n", "]\n", "", 1003},
	} {
		_, err := Parse("f", []byte(c.before+c.bad+c.after))
		faults, ok := err.(Faults)
		if !ok || len(faults) != 1 || faults[0].Line != c.line {
			t.Errorf("%s: got %.300v; want line %d", c.name, err, c.line)
		}
	}
}

// The search for the line ends soon, whatever the file.
func TestSyntaxLineIsBounded(t *testing.T) {
	for name, data := range map[string]string{
		"quote, then nothing":   "a: b\nc: \"" + strings.Repeat("\n", 1<<15),
		"bracket, then nothing": "a: b\nc: [" + strings.Repeat("\n", 1<<15),
		"bracket, then items":   "a: b\nc: [" + strings.Repeat("a,\n", 1<<14),
		"items, then a quote":   "a:\n" + strings.Repeat("- a\n", 1<<14) + "- \"",
		"brackets":              strings.Repeat("[\n", 1<<14),
		"dashes":                strings.Repeat("- ", 1<<14),
	} {
		p := newFirstLines([]byte(data))
		p.budget = 1 << 16
		if line := p.search(len(p.lines), 0); line < 1 || line > len(p.lines) {
			t.Errorf("%s: line %d of %d", name, line, len(p.lines))
		}
		if over := -p.budget; over > len(data) {
			t.Errorf("%s: %d bytes over the budget", name, over)
		}
	}
}
