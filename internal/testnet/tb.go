package testnet

import (
	"context"
	"os"
	"time"
)

// TB is what the package needs of a test. *testing.T and *testing.B are ones; a
// program that wants namespace hosts brings its own.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// RequireRoot skips the test for want of root. Where CI is set in the
// environment a missing prerequisite is a failure instead.
func RequireRoot(t TB) {
	t.Helper()
	requireRoot(t, os.Geteuid(), os.Getenv("CI"))
}

func requireRoot(t TB, euid int, ci string) {
	t.Helper()
	switch {
	case euid == 0:
	case ci != "":
		t.Fatalf("network namespaces need root, and this runs as uid %d", euid)
	default:
		t.Skipf("network namespaces need root, and this runs as uid %d", euid)
	}
}

// Eventually polls cond until it returns nil. It fails the test with the last
// error and the phrase what when that has not happened within the given time, or
// what of it is [Patience] here.
func Eventually(t TB, within time.Duration, what string, cond func() error) {
	t.Helper()
	within = Patience(within)
	deadline := time.Now().Add(within)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s: %v", within, what, err)
			return
		}
		time.Sleep(pause)
	}
}
