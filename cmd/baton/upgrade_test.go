package main

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/lb/relay"
)

// upgradePipes are the two ends of an upgrade's conversation.
func upgradePipes(t *testing.T) (old, next *admin.Pipe) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]*admin.Pipe, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pipe")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = admin.NewPipe(c.(*net.UnixConn), c.Close)
		ends[i].SetTimeout(5 * time.Second)
		t.Cleanup(func() { _ = ends[i].Close() })
	}
	return ends[0], ends[1]
}

// What the old process says, and what the next one makes of it.
func TestPredecessorSays(t *testing.T) {
	offer := upgradeMessage{Step: stepOffer, Offer: &upgradeOffer{Version: "v1", Loops: 3, Drained: []string{"web", "/"}}}
	sockets := upgradeMessage{Step: stepSockets, Relay: []relay.Handed{{Kind: relay.HandedShared}, {Kind: "of another version"}}}
	offered := upgradeMessage{Step: stepOffered}
	for _, tc := range []struct {
		name string
		says []upgradeMessage
		fds  []int // with each
		want string
	}{
		{"everything", []upgradeMessage{offer, sockets, offered}, []int{0, 2, 0}, ""},
		{"failure", []upgradeMessage{{Step: stepFailed, Error: "out of luck"}}, []int{0}, "out of luck"},
		{"that it is being stopped", []upgradeMessage{{Step: stepStopping}}, []int{0}, errStopping.Error()},
		{"too few descriptors", []upgradeMessage{sockets}, []int{1}, "1 descriptors came with a message about 2"},
		{"too many", []upgradeMessage{offered}, []int{1}, "1 descriptors came with a message about 0"},
		{"nothing", nil, nil, "EOF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			old, next := upgradePipes(t)
			told := make(chan error, 1)
			go func() {
				defer old.Close()
				for i, m := range tc.says {
					fds := []int{0, 0}[:tc.fds[i]]
					if m.Step == stepOffered || m.Step == stepFailed {
						told <- old.Send(m, fds...)
						return
					}
					if err := ask(old, m, fds...); err != nil {
						break
					}
				}
				told <- nil
			}()
			if len(tc.says) == 0 {
				<-told
			}
			p := &predecessor{pipe: next, other: make(map[otherSocket]*os.File), released: make(chan struct{})}
			err := p.takeUntil(stepOffered)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if tc.want == "" {
				if n := len(p.drained()); p.offer.Loops != 3 || n != 1 || len(p.sockets) != 2 {
					t.Errorf("loops %d, %d drained, %d sockets", p.offer.Loops, n, len(p.sockets))
				}
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A predecessor that dies at the last step has released everything.
func TestPredecessorDies(t *testing.T) {
	for _, dead := range []bool{true, false} {
		old, next := upgradePipes(t)
		pid := os.Getpid()
		if dead {
			pid = 1 << 30 // more than there can be
		}
		p := &predecessor{pid: pid, pipe: next, released: make(chan struct{})}
		_ = old.Close()
		if err := p.release(); (err == nil) != dead {
			t.Errorf("dead %v: %v", dead, err)
		}
	}
}
