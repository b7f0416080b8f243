package testnet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestCommandRunsInTheHost(t *testing.T) {
	h := New(t).Host("a")
	var inside string
	h.Do(func() { inside = current(t) })
	mnt, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	out, err := h.Command(t.Context(), "readlink", "/proc/self/ns/net", "/proc/self/ns/mnt").Output()
	if got, want := string(out), inside+"\n"+mnt+"\n"; err != nil || got != want {
		t.Errorf("namespaces %q, %v; want %q", got, err, want)
	}
}

func TestCommandSeesTheLinks(t *testing.T) {
	star := NewStar(t, 1)
	out, err := star.Client.Command(t.Context(), "ip", "-o", "address").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"inet 10.202.0.2/24", "inet6 fd00:202::2/64"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestCommandFailure(t *testing.T) {
	h := New(t).Host("a")
	out, err := h.Command(t.Context(), "sh", "-c", "echo out; echo wrong >&2; exit 3").Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || string(exit.Stderr) != "wrong\n" || string(out) != "out\n" {
		t.Errorf("got %q, %v", out, err)
	}
	if err := h.Command(t.Context(), "/no/such/program").Run(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want %v", err, os.ErrNotExist)
	}
}

func TestCommandEndsWithTheTest(t *testing.T) {
	RequireRoot(t)
	var c *Cmd
	t.Run("test", func(t *testing.T) {
		c = New(t).Host("a").Command(t.Context(), "sleep", "600")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	})
	if c.ProcessState == nil {
		t.Fatal("the test ended before its program")
	}
	if first, second := c.Wait(), c.Wait(); first == nil || first != second {
		t.Errorf("Wait says %v, then %v; want one error twice", first, second)
	}
}

// Threads come and go in a test; a program goes with the last of them only.
func TestCommandOutlivesThreads(t *testing.T) {
	n := New(t)
	c := n.Host("a").Command(t.Context(), "sleep", "600")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := onOwnThread(func() {}); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-c.ended:
		t.Error("the program has ended")
	default:
	}
	Eventually(t, 5*time.Second, "the program sleeps", func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
		if err == nil && !strings.Contains(string(stat), "(sleep) S") {
			err = fmt.Errorf("its state is %q", stat)
		}
		return err
	})
}

const insideEnv = "TESTNET_INSIDE"

func TestTestProcess(t *testing.T) {
	if want := os.Getenv(insideEnv); want != "" {
		seen := make(chan string)
		go func() { seen <- current(t) }()
		if got := <-seen; got != want {
			t.Errorf("a goroutine runs in %s, want %s", got, want)
		}
		return
	}
	h := New(t).Host("a")
	out, err := h.TestProcess(t.Context(), t.Name(), insideEnv+"="+inode(t, h)).CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
