package testnet

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const victimEnv = "TESTNET_VICTIM"

// inode is the namespace as /proc shows it.
func inode(t *testing.T, h *Host) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(h.NS()), &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("net:[%d]", st.Ino)
}

// users lists the processes that are in one of the namespaces or hold one open.
func users(namespaces []string) []string {
	var found []string
	for _, pattern := range []string{"/proc/[0-9]*/task/[0-9]*/ns/net", "/proc/[0-9]*/fd/[0-9]*"} {
		paths, _ := filepath.Glob(pattern)
		for _, p := range paths {
			if target, err := os.Readlink(p); err == nil && slices.Contains(namespaces, target) {
				found = append(found, p+" -> "+target)
			}
		}
	}
	return found
}

// wantUnused waits until nothing is in the namespaces any more: a thread or a process
// is gone a moment after it has ended.
func wantUnused(t *testing.T, namespaces []string) {
	t.Helper()
	Eventually(t, 5*time.Second, "all namespaces are gone", func() error {
		if left := users(namespaces); len(left) > 0 {
			return fmt.Errorf("still in use: %s", strings.Join(left, ", "))
		}
		return nil
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

func links(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("ip", "-o", "link").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func busyStar(t *testing.T) (namespaces []string) {
	star := NewStar(t, 2)
	srv := star.Backends[0].Serve(0, Hold)
	if _, err := star.Client.Dial("tcp", loopback(srv.Port)); err == nil {
		t.Error("the client reaches a server of another host over loopback")
	}
	if err := star.Client.Command(t.Context(), "sleep", "600").Start(); err != nil {
		t.Fatal(err)
	}
	for _, h := range append(star.Backends, star.Client, star.Balancer) {
		namespaces = append(namespaces, inode(t, h))
	}
	return namespaces
}

func TestNothingIsLeftBehind(t *testing.T) {
	RequireRoot(t)
	before, files := links(t), openFiles(t)
	var namespaces []string
	t.Run("test", func(t *testing.T) { namespaces = busyStar(t) })
	wantUnused(t, namespaces)
	if now := openFiles(t); now > files {
		t.Errorf("%d files open, %d before", now, files)
	}
	if now := links(t); now != before {
		t.Errorf("the machine's links are now:\n%swere:\n%s", now, before)
	}
}

// TestVictim is the process that TestKilledTestLeavesNothing kills. Run as
// anything else it has nothing to show.
func TestVictim(t *testing.T) {
	if os.Getenv(victimEnv) == "" {
		return
	}
	fmt.Println("victim", strings.Join(busyStar(t), " "))
	select {}
}

func TestKilledTestLeavesNothing(t *testing.T) {
	RequireRoot(t)
	victim := exec.Command(os.Args[0], "-test.run=^TestVictim$", "-test.timeout=60s")
	victim.Env = append(os.Environ(), victimEnv+"=1")
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var namespaces []string
	for lines := bufio.NewScanner(out); namespaces == nil && lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "victim "); ok {
			namespaces = strings.Fields(rest)
		}
	}
	if len(namespaces) != 4 || len(users(namespaces)) == 0 {
		t.Errorf("the victim named %v, which nobody uses", namespaces)
	}
	_ = victim.Process.Kill()
	_ = victim.Wait()
	wantUnused(t, namespaces)
}
