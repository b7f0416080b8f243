package kube

import (
	"cmp"
	"slices"

	"github.com/baton-lb/baton/lb/store"
)

// Checked is what files of objects come to.
type Checked struct {
	Faults []FileFault
	Counts store.Counts // of what is served
}

// FileFault is a fault of an object of a file, or of a file.
type FileFault struct {
	File string
	Fault
}

// Text is the fault without its file.
func (f FileFault) Text() string {
	switch {
	case f.Kind == kindFile:
		return f.Problem
	case f.Field == "":
		return objectText(f.Fault) + ": " + f.Problem
	}
	return objectText(f.Fault) + ": " + f.Field + ": " + f.Problem
}

// CheckFiles reads a file of objects or a directory of such files, as NewFiles would,
// and says what is wrong. The error is of a path that cannot be read at all.
func CheckFiles(path, node string) (Checked, error) {
	s, err := NewFiles(SourceOptions{Store: store.New(store.Options{}), Node: node}, path)
	if err != nil {
		return Checked{}, err
	}
	s.feeder.(*files).load(s, false)
	s.queue.complete()
	b, _ := s.queue.take()
	s.apply(b)
	c := Checked{Counts: s.o.Store.Snapshot().Counts()}
	for _, list := range s.told.faults {
		for _, f := range list {
			file := cmp.Or(s.feeder.where(f.Object()), path)
			if f.Kind == kindFile {
				file = f.Name
			}
			c.Faults = append(c.Faults, FileFault{file, f})
		}
	}
	slices.SortFunc(c.Faults, func(a, b FileFault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Problem, b.Problem))
	})
	return c, nil
}
