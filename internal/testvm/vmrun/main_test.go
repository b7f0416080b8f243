package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testvm"
)

func TestParse(t *testing.T) {
	s, err := parse(strings.Fields("-kernel 6.12 -timeout 1m -file /tmp/a.test -file b:/root/c -tools sh,ip -tools nft -env A=b -- ./a.test -v"), new(strings.Builder))
	if err != nil {
		t.Fatal(err)
	}
	want := testvm.Spec{
		Kernel: "6.12", CPUs: 2, Memory: 2048, Timeout: time.Minute,
		Files:    []testvm.File{{Source: "/tmp/a.test", Path: "/root/a.test"}, {Source: "b", Path: "/root/c"}},
		Tools:    []string{"sh", "ip", "nft"},
		Commands: []testvm.Command{{Args: []string{"./a.test", "-v"}, Env: []string{"A=b"}}},
	}
	if s.Log = nil; !reflect.DeepEqual(s, want) {
		t.Errorf("got  %+v\nwant %+v", s, want)
	}
}

// What is not a status of the program cannot be taken for one.
func TestNoProgram(t *testing.T) {
	for args, want := range map[string]int{
		"":              exitNone,
		"-kernel":       exitNone,
		"-unknown":      exitNone,
		"-cpus x -- sh": exitNone,
		"-help":         0,
	} {
		var out, errs strings.Builder
		if code := start(t.Context(), strings.Fields(args), &out, &errs); code != want || out.Len() != 0 {
			t.Errorf("vmrun %s: status %d, want %d; wrote %q", args, code, want, out.String())
		}
		if want != 0 && !strings.Contains(errs.String(), "vmrun:") {
			t.Errorf("vmrun %s: said %q", args, errs.String())
		}
	}
}
