package mode

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/perf/topology"
)

func hosts(t *testing.T) *topology.Hosts {
	t.Helper()
	testnet.RequireRoot(t)
	h, err := topology.Star{}.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// A program that ends instead of serving is an error at once, with its words.
func TestDaemonThatEnds(t *testing.T) {
	d, err := newDaemon(hosts(t))
	if err != nil {
		t.Fatal(err)
	}
	never := func(context.Context) error { return errors.New("not there") }
	err = d.start(t.Context(), never, "sh", "-c", "echo no luck; exit 1")
	if err == nil || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("start returned %v", err)
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is still there: %v", err)
	}
}

// A program that does not mind SIGTERM is killed with its children.
func TestDaemonThatStays(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes as long as a program may take to end")
	}
	d, err := newDaemon(hosts(t))
	if err != nil {
		t.Fatal(err)
	}
	ready := func(context.Context) error {
		if strings.Contains(d.out.String(), "ready") {
			return nil
		}
		return errors.New("not there")
	}
	script := "trap '' TERM; sleep 60 & echo ready; while :; do wait; done"
	if err := d.start(t.Context(), ready, "bash", "-c", script); err != nil {
		t.Fatal(err)
	}
	family := d.pids()
	if len(family) != 2 {
		t.Errorf("its family is %v", family)
	}
	if err := d.close(); err == nil {
		t.Error("it is said to have ended by itself")
	}
	testnet.Eventually(t, 5*time.Second, "all of it has ended", func() error {
		for _, pid := range family {
			if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
				return errors.New(string(stat))
			}
		}
		return nil
	})
}

func TestUnavailable(t *testing.T) {
	_, err := find("no-such-program", "no-such-package")
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "no-such-package") {
		t.Errorf("got %v", err)
	}
}
