package relay

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// inNamespace tells the test program that it runs in a network namespace of its
// own, where sockets may be made on any goroutine and sysctls may be changed.
const inNamespace = "RELAY_TEST_IN_NAMESPACE"

func TestMain(m *testing.M) {
	if os.Getenv(inNamespace) == "" && os.Geteuid() == 0 {
		fmt.Fprintln(os.Stderr, enterNamespace())
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// enterNamespace runs the test program anew in a fresh network namespace. It
// returns only when that fails.
func enterNamespace() error {
	runtime.LockOSThread() // execve(2) keeps the namespace of the calling thread
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the test program: %w", err)
	}
	return unix.Exec(self, os.Args, append(os.Environ(), inNamespace+"=1"))
}

// needsNamespace skips a test that changes what belongs to the whole network
// namespace when there is none of its own.
func needsNamespace(t testing.TB) {
	t.Helper()
	if os.Getenv(inNamespace) == "" {
		if os.Getenv("CI") != "" {
			t.Fatalf("a network namespace needs root, and this runs as uid %d", os.Geteuid())
		}
		t.Skipf("a network namespace needs root, and this runs as uid %d", os.Geteuid())
	}
}
