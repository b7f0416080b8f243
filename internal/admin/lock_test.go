package admin

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// lockHelper makes a process of this test binary take the lock, say so, and
// keep it until its standard input ends.
const lockHelper = "BATON_TEST_HOLD_LOCK"

func init() {
	if os.Getenv(lockHelper) == "" {
		return
	}
	l, err := AcquireLock(Holder{Socket: "/run/other/admin.sock", Config: "other.yaml"})
	fmt.Println("locked", err)
	bufio.NewReader(os.Stdin).ReadByte()
	if l != nil {
		l.Close()
	}
	os.Exit(0)
}

func TestLockIsExclusive(t *testing.T) {
	testnet.RequireRoot(t)
	host := testnet.New(t).Host("a")
	host.Do(func() {
		if _, ok, err := FindHolder(); ok || err != nil {
			t.Fatalf("held in a new namespace: %v, %v", ok, err)
		}
		first, err := AcquireLock(Holder{Socket: "/run/baton/admin.sock", Config: "baton.yaml", StateDir: "/run/baton"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = AcquireLock(Holder{})
		var held *HeldError
		if !errors.As(err, &held) || !errors.Is(err, ErrHeld) {
			t.Fatalf("got %v, want ErrHeld", err)
		}
		want := Holder{PID: os.Getpid(), Socket: "/run/baton/admin.sock", Config: "baton.yaml", StateDir: "/run/baton"}
		if held.Holder != want {
			t.Errorf("holder is %+v, want %+v", held.Holder, want)
		}
		if msg := fmt.Sprintf("pid %d (socket /run/baton/admin.sock) already runs in this network namespace", os.Getpid()); err.Error() != msg {
			t.Errorf("got %q, want %q", err, msg)
		}
		if err := errors.Join(first.Close(), first.Close()); err != nil {
			t.Fatal(err)
		}
		again, err := AcquireLock(Holder{})
		if err != nil {
			t.Fatalf("not free after Close: %v", err)
		}
		again.Close()
	})
}

// startHolder starts a process that holds the lock of the calling thread's
// namespace.
func startHolder(t *testing.T) *exec.Cmd {
	t.Helper()
	runtime.LockOSThread() // the child gets this thread's namespace
	defer runtime.UnlockOSThread()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), lockHelper+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "locked <nil>" {
		t.Fatalf("helper says %q, %v", line, err)
	}
	return cmd
}

// stopped is nil when the process is in state T.
func stopped(pid int) error {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return err
	}
	if _, after, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(after, "T") {
		return fmt.Errorf("not stopped: %s", stat)
	}
	return nil
}

func TestLockOfAnotherProcess(t *testing.T) {
	testnet.RequireRoot(t)
	net := testnet.New(t)
	a, b := net.Host("a"), net.Host("b")
	a.Do(func() {
		other := startHolder(t)
		_, err := AcquireLock(Holder{})
		var held *HeldError
		if !errors.As(err, &held) {
			t.Fatalf("got %v, want ErrHeld", err)
		}
		if held.Holder.PID != other.Process.Pid || held.Holder.Socket != "/run/other/admin.sock" {
			t.Errorf("holder is %+v, want pid %d", held.Holder, other.Process.Pid)
		}

		// A process that is stopped still holds it, and the kernel knows its pid.
		other.Process.Signal(unix.SIGSTOP)
		testnet.Eventually(t, 5*time.Second, "the holder is stopped", func() error {
			return stopped(other.Process.Pid)
		})
		h, ok, err := FindHolder()
		if err != nil || !ok || h.PID != other.Process.Pid || h.Socket != "" {
			t.Errorf("stopped holder: %+v, %v, %v", h, ok, err)
		}

		// It cannot be stale.
		other.Process.Kill()
		other.Wait()
		l, err := AcquireLock(Holder{})
		if err != nil {
			t.Fatalf("not free after the holder was killed: %v", err)
		}
		defer l.Close()
		b.Do(func() {
			l, err := AcquireLock(Holder{})
			if err != nil {
				t.Fatalf("another namespace is not free: %v", err)
			}
			l.Close()
		})
	})
}
