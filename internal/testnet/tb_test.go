package testnet

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// recorder is a TB that remembers the verdict. Unlike *testing.T it goes on after
// one, which the functions under test allow.
type recorder struct {
	*testing.T
	verdict string
}

func (r *recorder) Fatalf(f string, a ...any) { r.verdict = "fatal: " + fmt.Sprintf(f, a...) }
func (r *recorder) Skipf(f string, a ...any)  { r.verdict = "skip: " + fmt.Sprintf(f, a...) }

func TestRequireRoot(t *testing.T) {
	for _, tc := range []struct {
		name string
		euid int
		ci   string
		want string
	}{
		{"root", 0, "", ""},
		{"root in CI", 0, "true", ""},
		{"user", 1000, "", "skip: network namespaces need root, and this runs as uid 1000"},
		{"user in CI", 1000, "true", "fatal: network namespaces need root, and this runs as uid 1000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &recorder{T: t}
			requireRoot(r, tc.euid, tc.ci)
			if r.verdict != tc.want {
				t.Errorf("got %q, want %q", r.verdict, tc.want)
			}
		})
	}
}

func TestEventually(t *testing.T) {
	calls := 0
	Eventually(t, time.Second, "third time", func() error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	r := &recorder{T: t}
	Eventually(r, time.Millisecond, "never", func() error { return errors.New("no") })
	if want := fmt.Sprintf("fatal: not within %v: never: no", Patience(time.Millisecond)); !strings.HasPrefix(r.verdict, want) {
		t.Errorf("got %q, want %q", r.verdict, want)
	}
}
