package file

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with a file.
type Fault struct {
	File    string
	Line    int // from 1
	Message string
	Err     error // what it was made from, such as a *lb.FieldError; or nil
}

func (f *Fault) Error() string { return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message) }

// Unwrap gives Err, so that errors.Is(err, lb.ErrNotBuilt) works.
func (f *Fault) Unwrap() error { return f.Err }

// Faults is everything that is wrong with a file, by line.
type Faults []*Fault

// Error prints one fault a line.
func (f Faults) Error() string {
	var b strings.Builder
	for i, fault := range f {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(fault.Error())
	}
	return b.String()
}

// Summary says an error in one line, for a log: the first of several and how
// many more there are.
func Summary(err error) string {
	first, rest, more := strings.Cut(err.Error(), "\n")
	switch n := strings.Count(rest, "\n") + 1; {
	case !more:
		return first
	case n == 1:
		return first + " (and 1 more fault)"
	default:
		return fmt.Sprintf("%s (and %d more faults)", first, n)
	}
}

// Unwrap gives the single faults.
func (f Faults) Unwrap() []error {
	errs := make([]error, len(f))
	for i, fault := range f {
		errs[i] = fault
	}
	return errs
}

// sorted orders by line and drops what is said twice (a fault in defaults shows
// in every service).
func (f Faults) sorted() Faults {
	slices.SortStableFunc(f, func(a, b *Fault) int { return cmp.Compare(a.Line, b.Line) })
	type said struct {
		line    int
		message string
	}
	seen := make(map[said]bool, len(f))
	return slices.DeleteFunc(f, func(x *Fault) bool {
		k := said{x.Line, x.Message}
		dup := seen[k]
		seen[k] = true
		return dup
	})
}
