package suite

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseList(t *testing.T) {
	list, err := ParseList("# comment\n\nlb/relay  TestA|TestB # why\noffload/bpf\tTest.*  6.12\nlb/relay TestC 6.1 6.12\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 3 || list[0].Line != 3 || list[2].String() != "line 5: lb/relay TestC" {
		t.Errorf("got %v", list)
	}
	if got := packages(list); !slices.Equal(got, []string{"lb/relay", "offload/bpf"}) {
		t.Errorf("packages: %v", got)
	}
	if got := runPattern(list, "lb/relay"); got != "^(?:TestA|TestB|TestC)$" {
		t.Errorf("pattern: %s", got)
	}
	for i, on := range []bool{true, false, true} {
		if list[i].On("6.1") != on {
			t.Errorf("%v on 6.1: %v", list[i], !on)
		}
	}
	for text, want := range map[string]string{
		"\nlb/relay\n": "line 2: package lb/relay has no pattern",
		"lb/relay ((":  "line 1: ",
	} {
		if _, err := ParseList(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("of %q: got %v, want %q", text, err, want)
		}
	}
}

// Every package of the project's own list exists.
func TestList(t *testing.T) {
	text, err := os.ReadFile("../tests.txt")
	if err != nil {
		t.Fatal(err)
	}
	list, err := ParseList(string(text))
	if err != nil || len(list) == 0 {
		t.Fatalf("%d lines, %v", len(list), err)
	}
	for _, s := range list {
		if found, _ := filepath.Glob(filepath.Join("../../..", s.Package, "*_test.go")); len(found) == 0 {
			t.Errorf("%v: no tests there", s)
		}
	}
}
