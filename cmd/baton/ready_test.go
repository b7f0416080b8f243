package main

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/baton-lb/baton/internal/admin"
)

// readiness answers as told.
type readiness struct{ err error }

func (r *readiness) Ready() error { return r.err }
func (r *readiness) Live() error  { return nil }

func TestReadyCommand(t *testing.T) {
	r := &readiness{}
	s := serve(t, func(o *admin.Options) { o.Readiness = r })
	me := os.Getpid()
	for _, tc := range []struct {
		not    error
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{nil, nil, exitFine, "ready\n", ""},
		{nil, []string{"--pid", fmt.Sprint(me)}, exitFine, "ready\n", ""},
		{nil, []string{"--pid", "1"}, exitNotFine, "", fmt.Sprintf("baton: process %d serves\n", me)},
		{nil, []string{"-o", "json"}, exitFine, fmt.Sprintf("{\"ready\":true,\"pid\":%d}\n", me), ""},
		{errors.New("starting"), nil, exitNotFine, "", "baton: starting\n"},
		{errors.New("starting"), []string{"-o", "json"}, exitNotFine, fmt.Sprintf("{\"ready\":false,\"reason\":\"starting\",\"pid\":%d}\n", me), ""},
	} {
		r.err = tc.not
		code, out, errs := s.run(append([]string{"ready"}, tc.args...)...)
		if code != tc.code || out != tc.stdout || errs != tc.stderr {
			t.Errorf("%v, %v: %d %q %q, want %d %q %q", tc.args, tc.not, code, out, errs, tc.code, tc.stdout, tc.stderr)
		}
	}
	if _, why := isProcess(0, 1); why == "" {
		t.Error("a process that is not seen is the one that was meant")
	}
}
