package admin

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/baton-lb/baton/internal/testnet"
)

// askUpgrade sends a request, and returns the connection and the answer's status and
// text.
func (in *instance) askUpgrade(req UpgradeRequest) (conn *net.UnixConn, status int, text string) {
	in.t.Helper()
	c, err := net.Dial("unix", in.socket)
	if err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(func() { c.Close() })
	body, err := json.Marshal(req)
	if err != nil {
		in.t.Fatal(err)
	}
	fmt.Fprintf(c, "POST /v1/upgrade HTTP/1.1\r\nHost: baton\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		in.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		var answer errorAnswer
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			in.t.Fatal(err)
		}
		text = answer.Error
	}
	return c.(*net.UnixConn), resp.StatusCode, text
}

func TestUpgradeTakesOneAtATime(t *testing.T) {
	come, leave := make(chan UpgradeRequest), make(chan struct{})
	in := newInstance(t, func(o *Options) {
		o.Instance.StateDir = "/run/x"
		o.Upgrade = func(p *Pipe, r UpgradeRequest) {
			come <- r
			<-leave
			_ = p.Send("bye")
		}
	})
	ask := UpgradeRequest{Protocol: UpgradeProtocol, Version: "v2", PID: 1, StateDir: "/run/x"}
	for range 2 {
		conn, status, text := in.askUpgrade(ask)
		if status != http.StatusSwitchingProtocols {
			t.Fatalf("answer %d: %s", status, text)
		}
		if r := <-come; r.PID != os.Getpid() || r.Version != "v2" {
			t.Errorf("asked with %+v", r)
		}
		if _, status, text := in.askUpgrade(ask); status != http.StatusConflict || !strings.Contains(text, "already") {
			t.Errorf("a second one: %d, %s", status, text)
		}
		leave <- struct{}{}
		p := NewPipe(conn, conn.Close)
		var word string
		if _, err := p.Receive(&word); err != nil || word != "bye" {
			t.Errorf("got %q, %v", word, err)
		}
		if _, err := p.Receive(&word); err == nil {
			t.Errorf("the pipe is not closed: %q", word)
		}
		in.eventually("the upgrade is over", func() bool { return len(in.server.upgrading) == 0 })
	}
}

func TestUpgradeRefused(t *testing.T) {
	can := newInstance(t, func(o *Options) {
		o.Instance.StateDir = "/run/x"
		o.Upgrade = func(*Pipe, UpgradeRequest) { t.Error("an upgrade was begun") }
	})
	for _, tc := range []struct {
		name string
		in   *instance
		ask  UpgradeRequest
		want string
	}{
		{"another protocol", can, UpgradeRequest{Protocol: 99, Version: "v9", StateDir: "/run/x"}, "stop this one and start the other"},
		{"another directory", can, UpgradeRequest{Protocol: UpgradeProtocol, StateDir: "/run/y"}, "name the same --state-dir"},
		{"cannot", newInstance(t), UpgradeRequest{Protocol: UpgradeProtocol}, "cannot hand over"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, status, text := tc.in.askUpgrade(tc.ask); status != http.StatusConflict || !strings.Contains(text, tc.want) {
				t.Errorf("answer %d: %s", status, text)
			}
		})
	}
}

func TestSocketGoesOver(t *testing.T) {
	old := newInstance(t)
	next := newInstance(t, func(o *Options) { o.Socket, o.Aside = old.socket, true })
	serves := func(path string) string {
		t.Helper()
		in := &instance{t: t, socket: path}
		var i Instance
		if _, text := in.get("/v1/instance"); json.Unmarshal([]byte(text), &i) != nil {
			t.Fatal(text)
		}
		return i.Socket
	}
	aside, err := old.server.SetAside()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(old.server.Keep(), old.server.Keep()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(aside); err == nil {
		t.Error("the second path is left")
	}
	if _, err := old.server.SetAside(); err != nil {
		t.Fatal(err)
	}
	if err := next.server.Publish(); err != nil {
		t.Fatal(err)
	}
	if got := serves(aside); got != old.socket {
		t.Errorf("at the second path there is the instance of %s", got)
	}
	if err := next.stop(); err != nil { // it has failed after all
		t.Fatal(err)
	}
	if err := old.server.Keep(); err != nil {
		t.Fatal(err)
	}
	if got := serves(old.socket); got != old.socket {
		t.Errorf("at the path there is the instance of %s", got)
	}
	if err := old.stop(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(old.socket + "*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestLeaveTCP(t *testing.T) {
	in := newInstance(t)
	at := in.server.Addr().String()
	open, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	in.eventually("the connection is taken", func() bool { return len(in.server.listeners[1].l.slots) == 2 })
	in.server.LeaveTCP()
	if c, err := net.Dial("tcp", at); err == nil {
		c.Close()
		t.Error("it still listens")
	}
	fmt.Fprintf(open, "GET /livez HTTP/1.0\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(open), nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("who was there already got %v, %v", resp, err)
	}
	in.server.WaitTCP()
	if _, err := net.Dial("unix", in.socket); err != nil {
		t.Errorf("the socket: %v", err)
	}
}

func TestLockGoesOver(t *testing.T) {
	testnet.RequireRoot(t)
	testnet.New(t).Host("a").Do(func() {
		old, err := AcquireLock(Holder{Socket: "/run/old.sock"})
		if err != nil {
			t.Fatal(err)
		}
		f, err := old.File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		next, err := InheritLock(f, Holder{Socket: "/run/next.sock"})
		if err != nil {
			t.Fatal(err)
		}
		if err := old.Reclaim(); err != nil {
			t.Error(err)
		}
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if h, ok, err := FindHolder(); !ok || err != nil || h.Socket != "/run/next.sock" || h.PID != os.Getpid() {
				t.Errorf("the holder is %+v, %v, %v", h, ok, err)
			}
		}
		f.Close()
		if err := next.Close(); err != nil {
			t.Fatal(err)
		}
		if h, ok, err := FindHolder(); ok || err != nil {
			t.Errorf("after both have gone the holder is %+v, %v", h, err)
		}
	})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	if _, err := InheritLock(r, Holder{}); err == nil {
		t.Error("a pipe is a lock")
	}
}

// The process of another container has the same id, and takes the same second path: it
// is that one's to remove.
func TestSecondPathOfAnother(t *testing.T) {
	in := newInstance(t)
	aside, err := in.server.SetAside()
	if err != nil {
		t.Fatal(err)
	}
	other := newInstance(t)
	if err := os.Remove(aside); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(other.socket, aside); err != nil {
		t.Fatal(err)
	}
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(aside); err != nil {
		t.Errorf("the other one's path: %v", err)
	}
	if _, err := os.Lstat(in.socket); err == nil {
		t.Error("its own path is left")
	}
}
