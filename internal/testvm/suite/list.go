package suite

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Selection is a line of the list: tests of a package.
type Selection struct {
	Line    int
	Package string // directory below the module
	Pattern string // of whole test names
	Kernels []string

	tests *regexp.Regexp
}

// String is the line as it may be looked for.
func (s Selection) String() string {
	return fmt.Sprintf("line %d: %s %s", s.Line, s.Package, s.Pattern)
}

// On says whether the line holds for a kernel.
func (s Selection) On(kernel string) bool {
	return len(s.Kernels) == 0 || slices.Contains(s.Kernels, kernel)
}

// ParseList reads a list. A line is
//
//	PACKAGE PATTERN [KERNEL...]
//
// and what follows a # is a comment.
func ParseList(text string) ([]Selection, error) {
	var all []Selection
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		switch len(f) {
		case 0:
			continue
		case 1:
			return nil, fmt.Errorf("line %d: package %s has no pattern", number, f[0])
		}
		tests, err := regexp.Compile("^(?:" + f[1] + ")$")
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		all = append(all, Selection{Line: number, Package: f[0], Pattern: f[1], Kernels: f[2:], tests: tests})
	}
	return all, nil
}

// packages are the packages of some selections, each once, in order.
func packages(all []Selection) (names []string) {
	for _, s := range all {
		if !slices.Contains(names, s.Package) {
			names = append(names, s.Package)
		}
	}
	return names
}

// runPattern is what -test.run gets for a package.
func runPattern(all []Selection, pkg string) string {
	var patterns []string
	for _, s := range all {
		if s.Package == pkg {
			patterns = append(patterns, s.Pattern)
		}
	}
	return "^(?:" + strings.Join(patterns, "|") + ")$"
}
