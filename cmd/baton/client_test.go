package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

func TestListsAsJSON(t *testing.T) {
	s := serve(t)
	rec := s.open("10.201.1.2:40000")
	for cmd, list := range map[string]string{"services": "services", "backends": "backends", "flows": "flows"} {
		out := s.fine(cmd, "-o", "json")
		var m map[string][]json.RawMessage
		if err := json.Unmarshal([]byte(out), &m); err != nil || len(m) != 1 || len(m[list]) == 0 {
			t.Errorf("%s: %v: %s", cmd, err, out)
		}
	}
	rec.Finish(flow.ByBackend, flow.ReasonReset)
	if out := s.fine("flows", "-o", "json"); out != "{\"flows\":[]}\n" {
		t.Errorf("no flows: %q", out)
	}
	if out := s.fine("flows", "--ended", "-o", "json"); !strings.Contains(out, `"reason":"reset"`) {
		t.Errorf("ended: %s", out)
	}
}

func TestListsAsTables(t *testing.T) {
	s := serve(t)
	rec := s.open("10.201.1.2:40000")
	s.open("10.201.1.3:40000").Finish(flow.ByClient, flow.ReasonClosed)
	for _, tc := range []struct {
		args string
		want []string
		none string
	}{
		{"services", []string{"SERVICE", "tcp://10.96.0.10:80", "2/2"}, "10.202"},
		{"services --service other", []string{"SERVICE"}, "web"},
		{"backends", []string{"10.202.1.2:8080", "10.202.2.2:8080"}, "10.96"},
		{"backends --backend 10.202.2.0/24", []string{"10.202.2.2:8080"}, "10.202.1.2"},
		{"flows", []string{rec.ID().String(), "3.0M", "established"}, "10.201.1.3"},
		{"flows -o wide", []string{"TO-BACKEND", "1.2K", "10.96.0.10:80"}, "…"},
		{"flows --client 10.201.1.2 --client 10.201.1.3 --protocol tcp", []string{rec.ID().String()}, "10.201.1.3"},
		{"flows --client fd00::/8", []string{"ID"}, "web"},
		{"flows --ended", []string{"REASON", "10.201.1.3:40000", "closed"}, "10.201.1.2:"},
		{"flows --state ended", []string{"REASON", "10.201.1.3:40000"}, "10.201.1.2:"},
		{"flows --state ended --state established", []string{"STATE", "10.201.1.3:40000", "10.201.1.2:40000"}, "REASON"},
	} {
		out := s.fine(strings.Fields(tc.args)...)
		for _, want := range tc.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %s in\n%s", tc.args, want, out)
			}
		}
		if strings.Contains(out, tc.none) {
			t.Errorf("%s: %s in\n%s", tc.args, tc.none, out)
		}
	}
}

func TestDrainCommands(t *testing.T) {
	s := serve(t)
	s.open("10.201.1.2:40000")
	if got, want := s.fine("drain", "web"), "web/10.202.1.2:8080: no new flows, 1 flow open\nweb/10.202.2.2:8080: no new flows, 0 flows open\n"; got != want {
		t.Errorf("got %q", got)
	}
	if out := s.fine("backends"); strings.Count(out, "baton drain") != 2 {
		t.Errorf("got\n%s", out)
	}
	if got := s.fine("drain", "10.202.2.2:8080"); got != "web/10.202.2.2:8080: no new flows, 0 flows open\n" {
		t.Errorf("got %q", got)
	}
	want := "web/10.202.1.2:8080: takes new flows, 1 flow open\nweb/10.202.2.2:8080: still no new flows, its state is drain, 0 flows open\n"
	if got := s.fine("undrain", "web"); got != want {
		t.Errorf("got %q", got)
	}
	if got := s.fine("undrain", "10.202.2.2:8080", "-o", "json"); !strings.Contains(got, `"state":"ready"`) {
		t.Errorf("got %q", got)
	}
	for args, want := range map[string]string{
		"undrain web":          "baton: undrain web: not drained\n",
		"drain other":          "baton: drain other: unknown service \"other\"\n",
		"drain web/10.9.9.9:1": "baton: drain web/10.9.9.9:1: unknown backend: service \"web\" has none at 10.9.9.9:1\n",
	} {
		code, out, errs := s.run(strings.Fields(args)...)
		if code != exitNotFine || out != "" || errs != want {
			t.Errorf("%s: %d %q %q", args, code, out, errs)
		}
	}
}

func TestResetCommand(t *testing.T) {
	s := serve(t)
	a, b := s.open("10.201.1.2:40000"), s.open("10.201.1.3:40000")
	want := fmt.Sprintf("%s: reset (web, 10.201.1.2:40000 to 10.202.1.2:8080)\n", a.ID())
	if got := s.fine("reset", a.ID().String()); got != want {
		t.Errorf("got %q", got)
	}
	if got := s.fine("reset", b.ID().String()[:12], "-o", "json"); !strings.Contains(got, `"reason":"admin-reset"`) {
		t.Errorf("got %q", got)
	}
	if s.registry.Len() != 0 {
		t.Errorf("%d flows are left", s.registry.Len())
	}
	code, _, errs := s.run("reset", a.ID().String())
	if code != exitNotFine || !strings.Contains(errs, "has ended already: by baton, admin-reset") {
		t.Errorf("%d %q", code, errs)
	}
}

// follower runs a command that goes on; its lines come through next.
func (s *served) follower(args ...string) (next func() string, wait func() (int, string)) {
	s.t.Helper()
	r, w := io.Pipe()
	var errs bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- execute(append(args, "--socket", s.socket), w, &errs)
		w.Close()
	}()
	lines := bufio.NewReader(r)
	return func() string {
			line, err := lines.ReadString('\n')
			if err != nil {
				s.t.Errorf("read the output: %v", err)
			}
			return line
		}, func() (int, string) {
			go io.Copy(io.Discard, r)
			code := <-done
			return code, errs.String()
		}
}

// untilFollowed makes events until each follower has seen one.
func (s *served) untilFollowed(followers ...func() string) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			s.open("10.201.1.254:1").Finish(flow.ByClient, flow.ReasonClosed)
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	for _, next := range followers {
		next()
	}
	close(stop)
	<-done
}

// eventOf is the next line about a flow.
func eventOf(next func() string, rec *flow.Record) string {
	for {
		if line := next(); line == "" || strings.Contains(line, rec.ID().String()) {
			return line
		}
	}
}

func TestTraceCommand(t *testing.T) {
	s := serve(t)
	next, wait := s.follower("trace", "--client", "10.201.1.0/24")
	nextJSON, waitJSON := s.follower("trace", "-o", "json")
	s.untilFollowed(next, nextJSON)
	rec := s.open("10.201.1.2:40000")
	rec.FirstByte(flow.ByClient)
	rec.DialFailed(flow.DialRefused)
	rec.HalfClosed(flow.ByBackend)
	rec.Finish(flow.ByBackend, flow.ReasonClosed)
	for _, want := range []string{
		"accepted       web from 10.201.1.2:40000 at tcp://10.96.0.10:80",
		"picked         10.202.1.2:8080 by algorithm",
		"dialled        10.202.1.2:8080",
		"first-byte     by client",
		"dial-failed    10.202.1.2:8080: refused",
		"half-closed    by backend",
		"ended          by backend: closed; 1.2K to backend, 3.0M to client",
	} {
		if line := eventOf(next, rec); !strings.HasSuffix(line, "  "+rec.ID().String()+"  "+want+"\n") {
			t.Errorf("got %q, want %s", line, want)
		}
		if line := eventOf(nextJSON, rec); !json.Valid([]byte(line)) || !strings.Contains(line, `"event":"`+strings.Fields(want)[0]+`"`) {
			t.Errorf("JSON: got %q, want %s", line, want)
		}
	}
	s.stop()
	for _, w := range []func() (int, string){wait, waitJSON} {
		if code, errs := w(); code != exitNotFine || errs != "baton: the instance has stopped\n" {
			t.Errorf("at the end: %d %q", code, errs)
		}
	}
}

func TestWatchCommand(t *testing.T) {
	s := serve(t)
	nextJSON, waitJSON := s.follower("flows", "--watch", "-o", "json")
	next, wait := s.follower("backends", "-w", "--backend", "10.202.1.2")
	if got := nextJSON(); got != "{\"flows\":[]}\n" {
		t.Errorf("first: %q", got)
	}
	if got := next() + next() + next(); !strings.Contains(got, "10.202.1.2:8080") || !strings.HasSuffix(got, "\n\n") {
		t.Errorf("first: %q", got)
	}
	rec := s.open("10.201.1.2:40000")
	if got := nextJSON(); !strings.Contains(got, rec.ID().String()) {
		t.Errorf("then: %q", got)
	}
	next() // the title
	if got := next(); strings.Join(strings.Fields(got), " ") != "web 10.202.1.2:8080 ready healthy 1 1 0 -" {
		t.Errorf("then: %q", got)
	}
	s.stop()
	if code, errs := waitJSON(); code != exitNotFine || errs != "baton: the instance has stopped\n" {
		t.Errorf("at the end: %d %q", code, errs)
	}
	if code, errs := wait(); code != exitNotFine || !strings.Contains(errs, "no baton is running here") {
		t.Errorf("at the end: %d %q", code, errs)
	}
}

func TestInPlace(t *testing.T) {
	if got := string(inPlace([]byte("a\nb\n"))); got != "\x1b[Ha\x1b[K\r\nb\x1b[K\r\n\x1b[J" {
		t.Errorf("%q", got)
	}
	if _, ok := terminalRows(&bytes.Buffer{}); ok {
		t.Error("a buffer is no terminal")
	}
}

func TestCompletion(t *testing.T) {
	s := serve(t)
	rec := s.open("10.201.1.2:40000")
	for _, tc := range []struct {
		args []string
		want []string
		none string
	}{
		{[]string{"drain", ""}, []string{"web\n", "web/10.202.1.2:8080\tready", "web/10.202.2.2:8080"}, ""},
		{[]string{"drain", "web/10.202.2"}, []string{"web/10.202.2.2:8080"}, "10.202.1.2"},
		{[]string{"undrain", "web", ""}, nil, "10.202"},
		{[]string{"reset", ""}, []string{rec.ID().String() + "\tweb, 10.201.1.2:40000 to 10.202.1.2:8080"}, ""},
		{[]string{"flows", "--service", ""}, []string{"web"}, ""},
		{[]string{"flows", "--frontend", ""}, []string{"tcp://10.96.0.10:80\tweb"}, ""},
		{[]string{"flows", "--backend", ""}, []string{"10.202.1.2:8080"}, ""},
		{[]string{"flows", "--state", ""}, []string{"half-closed", "offloaded"}, ""},
		{[]string{"flows", "--protocol", ""}, []string{"sctp"}, ""},
		{[]string{"flows", "-o", ""}, []string{"table", "json", "wide"}, ""},
	} {
		args := append([]string{"__complete", tc.args[0], "--socket", s.socket}, tc.args[1:]...)
		_, out, _ := command(args...)
		for _, want := range tc.want {
			if !strings.Contains(out, want) {
				t.Errorf("%v: no %q in %q", tc.args, want, out)
			}
		}
		if tc.none != "" && strings.Contains(out, tc.none) {
			t.Errorf("%v: %q in %q", tc.args, tc.none, out)
		}
	}
	s.stop() // without an instance there are no words, and no errors
	if _, out, _ := command("__complete", "drain", "--socket", s.socket, ""); strings.Contains(out, "web") {
		t.Errorf("got %q", out)
	}
}
