package kube

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/baton-lb/baton/lb"
)

const docsPath = "../../../docs/kubernetes.md"

// The table of the documentation and the tests are the same rows.
func TestDocumentedRows(t *testing.T) {
	text, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## What is served\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var documented, tested []string
	for _, m := range regexp.MustCompile("(?m)^\\|.*\\| `([a-z0-9-]+)` \\|$").FindAllStringSubmatch(table, -1) {
		documented = append(documented, m[1])
	}
	if len(documented) != strings.Count(table, "\n|")-2*strings.Count(table, "\n|---") {
		t.Error("a row of the table has no test")
	}
	for _, r := range rows {
		tested = append(tested, r.name)
	}
	slices.Sort(documented)
	slices.Sort(tested)
	for _, name := range documented {
		if !slices.Contains(tested, name) {
			t.Errorf("%s is documented and not tested", name)
		}
	}
	for _, name := range tested {
		if !slices.Contains(documented, name) {
			t.Errorf("%s is tested and not documented", name)
		}
	}
	if n := len(slices.Compact(documented)); n != len(tested) || len(slices.Compact(tested)) != n {
		t.Error("a row is there twice")
	}
}

// The documentation lists every annotation with its words.
func TestDocumentedAnnotations(t *testing.T) {
	text, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	has := func(name string, words ...string) {
		t.Helper()
		if row := "| `" + name + "` | `" + strings.Join(words, "`, `") + "`"; !strings.Contains(string(text), row) {
			t.Errorf("there is no row %s", row)
		}
	}
	has(annotationBalance, texts(lb.Algorithms)...)
	has(annotationClient, texts(lb.ClientAddresses)...)
	has(annotationRemoved, texts(lb.RemovedPolicies)...)
	has(annotationOffload, texts(lb.OffloadModes)...)
	for _, name := range annotations {
		if !strings.Contains(string(text), "\n| `"+name+"` | ") {
			t.Errorf("there is no row of %s", name)
		}
	}
}

func texts[T ~string](list []T) (all []string) {
	for _, v := range list {
		all = append(all, string(v))
	}
	return all
}
