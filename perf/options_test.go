package main

import (
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/perf/workload"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		args string
		want string // part of the error; empty for none
	}{
		{"", ""},
		{"-rounds 3 -duration 200ms -modes baton -also old=/tmp/baton -also new=./baton", ""},
		{"-rounds 0", "-rounds"},
		{"-duration 1ms", "-duration"},
		{"-also old", "NAME=PATH"},
		{"everything", "everything"},
		{"-no-such-flag", "no-such-flag"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			_, err := parse(strings.Fields(tc.args))
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	if _, err := parse([]string{"-h"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
	o, err := parse([]string{"-quick", "-rounds", "9"})
	if err != nil || o.rounds != 1 || o.duration != 200*time.Millisecond {
		t.Errorf("-quick: %+v, %v", o, err)
	}
}

func TestSelected(t *testing.T) {
	all := workload.All(workload.Sizes{})
	some, err := selected("workload", "udp-16, kept-1", all, workloadName)
	if err != nil || strings.Join(workloadNames(some), " ") != "kept-1 udp-16" {
		t.Errorf("got %v, %v", workloadNames(some), err)
	}
	if some, err := selected("workload", "", all, workloadName); err != nil || len(some) != len(all) {
		t.Errorf("nothing named: %v, %v", workloadNames(some), err)
	}
	if _, err := selected("workload", "kept-1,kept-2", all, workloadName); err == nil || !strings.Contains(err.Error(), "kept-2") {
		t.Errorf("an unknown one: %v", err)
	}
}
