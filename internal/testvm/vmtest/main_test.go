package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(list, []byte("lb Test.*\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := parse([]string{"-list", list, "-kernels", "6.1,6.12", "-only", "lb"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Kernels, []string{"6.1", "6.12"}) || s.Only != "lb" || len(s.List) != 1 || s.All != nil {
		t.Errorf("got %+v", s)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range []string{"-list /no/such/list", "-unknown", "something"} {
		var errs strings.Builder
		if code := start(t.Context(), strings.Fields(args), new(strings.Builder), &errs); code != exitUsage || !strings.Contains(errs.String(), "vmtest:") {
			t.Errorf("vmtest %s: status %d, said %q", args, code, errs.String())
		}
	}
}
