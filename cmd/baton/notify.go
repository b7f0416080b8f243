package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/baton-lb/baton/internal/clock"
)

// notifier tells a service manager how this process is, in the words of sd_notify(3). A
// nil one has nobody to tell.
type notifier struct {
	conn  *net.UnixConn
	every time.Duration // between signs of life; 0 = none are asked for

	reloads atomic.Bool // a reload is under way
}

// openNotifier connects to the manager that the environment names; nil when it names
// none.
func openNotifier() (*notifier, error) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil, nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("notify the service manager: %w", err)
	}
	return &notifier{conn: conn, every: watchdogPeriod()}, nil
}

// watchdogPeriod is half of what the manager waits before it takes the process for
// stuck.
func watchdogPeriod() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0 // it is not us that it watches
	}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || usec <= 0 {
		return 0
	}
	return time.Duration(usec) * time.Microsecond / 2
}

func (n *notifier) ready()    { n.tell("READY=1") }
func (n *notifier) stopping() { n.tell("STOPPING=1") }

// reloading says that a reload begins, and since when: what the manager asked for before
// that is answered by it.
func (n *notifier) reloading() {
	if n == nil {
		return
	}
	n.reloads.Store(true)
	n.tell(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", clock.Monotonic().Microseconds()))
}

// reloaded says that the source has been read, if that was asked for.
func (n *notifier) reloaded() {
	if n != nil && n.reloads.Swap(false) {
		n.ready()
	}
}

// watch gives signs of life for as long as the process is alive, until stop is called.
func (n *notifier) watch(alive func() error) (stop func()) {
	if n == nil || n.every == 0 {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(n.every)
		defer tick.Stop()
		for {
			if alive() == nil {
				n.tell("WATCHDOG=1")
			}
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	}()
	return func() { close(done); <-ended }
}

// tell sends a message. A manager that does not listen is none of our trouble, and one
// that is slow has a second.
func (n *notifier) tell(message string) {
	if n == nil {
		return
	}
	_ = n.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = n.conn.Write([]byte(message))
}

// Close may be called more than once.
func (n *notifier) Close() error {
	if n == nil {
		return nil
	}
	if err := n.conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
