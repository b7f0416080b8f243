package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

const module = "github.com/baton-lb/baton"

// A file is a Go file and what it imports.
type file struct {
	pkg     string // directory below the module
	name    string
	imports []string
}

func (f file) test() bool    { return strings.HasSuffix(f.name, "_test.go") }
func (f file) example() bool { return f.test() && strings.HasPrefix(f.name, "example") }

// collector says whether the file or its package is named for Prometheus
// collectors.
func (f file) collector() bool {
	stem := strings.TrimSuffix(f.name, ".go")
	for _, name := range []string{stem, path.Base(f.pkg)} {
		if name == "collector" || name == "collectors" || strings.HasSuffix(name, "_collector") {
			return true
		}
	}
	return false
}

// check returns a sentence for each import that the rows do not allow.
func check(rows []row, files []file) []string {
	byPath := make(map[string]row, len(rows))
	for _, r := range rows {
		byPath[r.path] = r
	}
	var faults []string
	unlisted := make(map[string]bool)
	for _, f := range files {
		r, ok := byPath[f.pkg]
		if !ok {
			if !unlisted[f.pkg] {
				unlisted[f.pkg] = true
				faults = append(faults, f.pkg+" is not in the table: add it to internal/arch/table_test.go with its reason in docs/decisions")
			}
			continue
		}
		for _, imp := range f.imports {
			if fault := judge(r, f, imp); fault != "" {
				faults = append(faults, fmt.Sprintf("%s imports %s: %s", path.Join(f.pkg, f.name), imp, fault))
			}
		}
	}
	return faults
}

// judge says why the file may not have the import, or nothing.
func judge(r row, f file, imp string) string {
	if imp == module {
		return "there is no package at the top"
	}
	if ours, ok := strings.CutPrefix(imp, module+"/"); ok {
		return judgeOurs(r, f, ours)
	}
	if r.pure && !f.test() && slices.Contains(impure, imp) {
		return r.path + " is pure"
	}
	for _, l := range libraries {
		if l.covers(imp) && !l.allows(f) {
			return l.why
		}
	}
	return ""
}

func judgeOurs(r row, f file, ours string) string {
	if f.example() {
		if matches(exampleMay, ours) && !matches(exampleNot, ours) {
			return ""
		}
		return "an example imports what another program can"
	}
	for _, b := range bans {
		if matches(b.from, f.pkg) && matches(b.to, ours) {
			return b.why
		}
	}
	if ours == "internal/testnet" && !f.test() && !matches(testnetHome, f.pkg) {
		return "namespace hosts are for tests"
	}
	if matches(r.may, ours) && !matches(r.not, ours) {
		return ""
	}
	if f.test() && (ours == f.pkg || matches(everyTest, ours) || matches(r.tests, ours)) {
		return ""
	}
	return "the table does not allow it"
}

// covers says whether the import is of the library: the prefix itself or
// something below it. The standard library's packages are taken alone.
func (l library) covers(imp string) bool {
	if !strings.Contains(l.prefix, ".") {
		return imp == l.prefix
	}
	return imp == l.prefix || strings.HasPrefix(imp, strings.TrimSuffix(l.prefix, "/")+"/")
}

func (l library) allows(f file) bool {
	return matches(l.home, f.pkg) || l.tests && f.test() || l.files && f.collector()
}

// matches says whether one of the patterns is for the package.
func matches(patterns []string, pkg string) bool {
	for _, p := range patterns {
		tree, all := strings.CutSuffix(p, "...")
		tree = strings.TrimSuffix(tree, "/")
		if pkg == tree || all && (tree == "" || strings.HasPrefix(pkg, tree+"/")) {
			return true
		}
	}
	return false
}
