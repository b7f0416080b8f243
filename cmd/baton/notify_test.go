package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// manager is a service manager that listens.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func newManager(t *testing.T, name string) *manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return &manager{t, conn}
}

// hears waits for the next message.
func (m *manager) hears() string {
	m.t.Helper()
	buf := make([]byte, 4096)
	_ = m.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	n, err := m.conn.Read(buf)
	if err != nil {
		m.t.Fatalf("hear: %v", err)
	}
	return string(buf[:n])
}

func (m *manager) want(messages ...string) {
	m.t.Helper()
	for _, want := range messages {
		if got := m.hears(); got != want {
			m.t.Errorf("it says %q, want %q", got, want)
		}
	}
}

func TestNotifier(t *testing.T) {
	for name, socket := range map[string]string{
		"path":     filepath.Join(t.TempDir(), "notify"),
		"abstract": fmt.Sprintf("@baton-test-notify-%d", os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, socket)
			n, err := openNotifier()
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			n.ready()
			n.reloaded() // nobody has asked
			n.stopping()
			m.want("READY=1", "STOPPING=1")

			n.reloading()
			n.reloaded()
			n.reloaded()
			first := m.hears()
			usec, ok := strings.CutPrefix(first, "RELOADING=1\nMONOTONIC_USEC=")
			if at, err := strconv.ParseInt(usec, 10, 64); !ok || err != nil || at <= 0 {
				t.Errorf("it says %q", first)
			}
			m.want("READY=1")
			n.stopping()
			m.want("STOPPING=1")
		})
	}
}

func TestNotifierWithoutManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	n, err := openNotifier()
	if n != nil || err != nil {
		t.Fatalf("got %v, %v", n, err)
	}
	n.ready()
	n.reloading()
	n.reloaded()
	n.stopping()
	n.watch(func() error { return nil })()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	if _, err := openNotifier(); err == nil {
		t.Error("a manager that is not there is no error")
	}
}

// Signs of life come as long as there is life.
func TestNotifierWatchdog(t *testing.T) {
	m := newManager(t, filepath.Join(t.TempDir(), "notify"))
	t.Setenv("WATCHDOG_USEC", "2000")
	n, err := openNotifier()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	stop := n.watch(func() error { return nil })
	m.want("WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1")
	stop()
	n.ready()
	for m.hears() != "READY=1" {
	}
	asked := make(chan struct{}, 1)
	stop = n.watch(func() error {
		select {
		case asked <- struct{}{}:
		default:
		}
		return errors.New("stuck")
	})
	<-asked
	<-asked
	stop()
	n.stopping()
	m.want("STOPPING=1")
}

func TestWatchdogPeriod(t *testing.T) {
	for _, tc := range []struct {
		usec, pid string
		want      time.Duration
	}{
		{"", "", 0},
		{"20000000", "", 10 * time.Second},
		{"20000000", strconv.Itoa(os.Getpid()), 10 * time.Second},
		{"20000000", "1", 0},
		{"-5", "", 0},
		{"soon", "", 0},
	} {
		t.Setenv("WATCHDOG_USEC", tc.usec)
		t.Setenv("WATCHDOG_PID", tc.pid)
		if got := watchdogPeriod(); got != tc.want {
			t.Errorf("WATCHDOG_USEC=%s WATCHDOG_PID=%s: %s, want %s", tc.usec, tc.pid, got, tc.want)
		}
	}
}
