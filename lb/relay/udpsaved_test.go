package relay

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/proxyproto"
	"github.com/baton-lb/baton/lb/sched"
)

// A process that stops leaves its sessions to the next one: the same backend, the
// same source port, the same record. So do two stops in a row, before clients have
// come back.
func TestUDPSessionsOutliveARestart(t *testing.T) {
	a, b := newUDPBackend(t, "a"), newUDPBackend(t, "b")
	dir := t.TempDir()
	svc := udpOf(service("dns", udpVIP, a.addr, b.addr))
	type client struct {
		*net.UDPConn
		at string
	}
	var clients []client
	first := newWorld(t, Options{Loops: 2, StateDir: dir})
	first.serve(svc)
	for i := range 20 {
		c := client{UDPConn: udpClientTo(t, udpVIP)}
		for range 1 + i%3 {
			c.at = asked(t, c.UDPConn)
		}
		clients = append(clients, c)
	}
	views := make(map[string]flow.View)
	for _, rec := range first.sessions(len(clients)) {
		testnet.Eventually(t, patience, "the answers are counted", func() error { // a client may have its answer before
			v := rec.View()
			views[v.Client.String()] = v
			if v.PacketsToClient != v.PacketsToBackend {
				return fmt.Errorf("%d of %d", v.PacketsToClient, v.PacketsToBackend)
			}
			return nil
		})
	}
	first.close()
	for _, loops := range []int{1, 3} {
		idle := newWorld(t, Options{Loops: loops, StateDir: dir})
		idle.serve(svc)
		c := udpClientTo(t, udpVIP) // somebody else
		asked(t, c)
		idle.close()
	}
	last := newWorld(t, Options{Loops: 2, StateDir: dir})
	last.serve(svc)
	for _, c := range clients {
		if at := asked(t, c.UDPConn); at != c.at {
			t.Errorf("a client was at %s and is now at %s", c.at, at)
		}
	}
	if n := len(a.senders()) + len(b.senders()); n > len(clients)+2 {
		t.Errorf("the backends saw %d sources of %d clients", n, len(clients)+2)
	}
	for _, rec := range last.sessions(len(clients)) {
		testnet.Eventually(t, patience, "the answer is counted", func() error {
			now := rec.View()
			old, ok := views[now.Client.String()]
			if !ok || now.ID != old.ID || !now.StartedAt.Equal(old.StartedAt) {
				t.Fatalf("the flow was %+v and is %+v", old, now)
			}
			if now.PacketsToBackend != old.PacketsToBackend+1 || now.BytesToClient != old.BytesToClient+3 {
				return fmt.Errorf("it had carried %+v and has %+v", old, now)
			}
			return nil
		})
	}
}

// A session comes back to a backend that drains, but not to one that is down or
// gone, nor from an address that is no longer configured.
func TestUDPRestoreObeysTheConfiguration(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*lb.Service)
		source SourceParams
		want   string // who answers
		port   bool   // it is the same
	}{
		{"as it was", func(*lb.Service) {}, SourceParams{}, "a", true},
		{"draining", func(s *lb.Service) { s.Backends[0].State = lb.StateDrain }, SourceParams{}, "a", true},
		{"down", func(s *lb.Service) { s.Backends[0].State = lb.StateDown }, SourceParams{}, "b", false},
		{"gone", func(s *lb.Service) { s.Backends = s.Backends[1:] }, SourceParams{}, "b", false},
		{"drained, and idle for too long", func(s *lb.Service) { s.Backends[0].State = lb.StateDrain; s.Timeouts.UDPIdle = time.Second }, SourceParams{}, "b", false},
		{"other ports", func(*lb.Service) {}, SourceParams{FirstPort: 20000, LastPort: 20010}, "a", false},
		{"other address", func(*lb.Service) {}, SourceParams{Addresses: []netip.Addr{netip.MustParseAddr("127.0.9.1")}}, "a", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := newUDPBackend(t, "a"), newUDPBackend(t, "b")
			dir := t.TempDir()
			w := newWorld(t, Options{Loops: 1, StateDir: dir})
			w.serve(udpOf(service("dns", udpVIP, a.addr)))
			c := udpClientTo(t, udpVIP)
			ask(t, c, a)
			before := a.senders()[0]
			a.forget()
			w.close()
			stopped := time.Now().Add(-2 * time.Second)
			if err := os.Chtimes(filepath.Join(dir, savedFile), stopped, stopped); err != nil {
				t.Fatal(err)
			}
			svc := udpOf(service("dns", udpVIP, a.addr, b.addr))
			tc.change(&svc)
			w = newWorld(t, Options{Loops: 1, StateDir: dir, Source: tc.source})
			w.serve(svc)
			send(t, c, "x")
			if got, err := take(c, patience); err != nil || got != tc.want+" x" {
				t.Fatalf("got %q, %v; want %s", got, err, tc.want)
			}
			at := map[string]*udpBackend{"a": a, "b": b}[tc.want]
			if now := at.senders()[0]; (now == before) != tc.port {
				t.Errorf("it came from %s, before from %s", now, before)
			}
		})
	}
}

// A source port that somebody else has by now is given up.
func TestUDPRestorePortTaken(t *testing.T) {
	a := newUDPBackend(t, "a")
	dir := t.TempDir()
	w := newWorld(t, Options{Loops: 1, StateDir: dir})
	svc := udpOf(service("dns", udpVIP, a.addr))
	w.serve(svc)
	c := udpClientTo(t, udpVIP)
	ask(t, c, a)
	w.close()
	udpBackendAt(t, "somebody else", a.senders()[0])
	w = newWorld(t, Options{Loops: 1, StateDir: dir})
	w.serve(svc)
	ask(t, c, a)
	if n := len(a.senders()); n != 2 {
		t.Errorf("the backend saw %d sources", n)
	}
}

// Clients behind a proxy share its address; their sessions are kept apart.
func TestUDPRestoreBehindAProxy(t *testing.T) {
	a, b := newUDPBackend(t, "a"), newUDPBackend(t, "b")
	dir := t.TempDir()
	svc := udpOf(service("dns", udpVIP, a.addr, b.addr))
	svc.AcceptProxy = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	proxy := udpClientTo(t, udpVIP)
	at := make(map[int]string)
	talk := func(again bool) {
		w := newWorld(t, Options{Loops: 1, StateDir: dir})
		defer w.close()
		w.serve(svc)
		for i := range 9 {
			client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i % 3)}), uint16(1+i))
			send(t, proxy, string(proxyproto.Append(nil, proxyproto.V2, proxyproto.Datagram, client, udpVIP))+"x")
			got, err := take(proxy, patience)
			if err != nil || again && got != at[i] {
				t.Errorf("client %d: %q, %v; before %q", i, got, err, at[i])
			}
			at[i] = got
		}
		w.sessions(9)
	}
	talk(false)
	talk(true)
	if n := len(a.senders()) + len(b.senders()); n != 9 {
		t.Errorf("the backends saw %d sources of 9 clients", n)
	}
}

// The file that a stop writes is the last: what ends afterwards stays in it.
func TestUDPFileIsFinal(t *testing.T) {
	a := newUDPBackend(t, "a")
	dir := t.TempDir()
	w := newWorld(t, Options{Loops: 1, StateDir: dir})
	w.serve(udpOf(service("dns", udpVIP, a.addr)))
	ask(t, udpClientTo(t, udpVIP), a)
	w.relay.stopListening()
	w.relay.stopUDP()
	w.sessions(0)
	if err := w.relay.saveSessions(false); err != nil { // a tick while connections drain
		t.Fatal(err)
	}
	if list := readSaved(t, dir); len(list) != 1 || list[0].Backend != a.addr {
		t.Errorf("the file has %+v", list)
	}
}

func readSaved(t *testing.T, dir string) (list []savedSession) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, savedFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// The file is written when something has changed, and else says that its sessions
// are alive. Those that have not come back keep their own time.
func TestUDPFileIsKeptFresh(t *testing.T) {
	a := newUDPBackend(t, "a")
	dir := t.TempDir()
	path := filepath.Join(dir, savedFile)
	old := time.Now().Add(-20 * time.Second).Truncate(time.Second)
	waiting := savedSession{ID: 7, Peer: netip.MustParseAddrPort("192.0.2.1:1"), Frontend: udpVIP, Backend: a.addr}
	gone := waiting
	gone.Peer, gone.Seen = netip.MustParseAddrPort("192.0.2.1:2"), time.Now().Add(-2*keepSaved)
	b, err := json.Marshal([]savedSession{waiting, gone})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, Options{Loops: 1, StateDir: dir})
	svc := udpOf(service("dns", udpVIP, a.addr))
	w.serve(svc)
	ask(t, udpClientTo(t, udpVIP), a)
	save := func(want int) os.FileInfo {
		t.Helper()
		if err := w.relay.saveSessions(false); err != nil {
			t.Fatal(err)
		}
		if list := readSaved(t, dir); len(list) != want {
			t.Fatalf("the file has %+v", list)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first := save(2)
	for _, e := range readSaved(t, dir) {
		if e.ID == 7 && !e.Seen.Equal(old) || e.ID != 7 && !e.Seen.IsZero() {
			t.Errorf("%+v was seen at %s, the file was of %s", e, e.Seen, old)
		}
	}
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	second := save(2)
	if !os.SameFile(first, second) || time.Since(second.ModTime()) > patience {
		t.Errorf("nothing has changed: the file is of %s, the same one: %v", second.ModTime(), os.SameFile(first, second))
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	save(2) // it is written anew
	ask(t, udpClientTo(t, udpVIP), a)
	save(3)
	// A session that moves is a change too.
	b2 := newUDPBackend(t, "b")
	w.serve(udpOf(service("dns", udpVIP, b2.addr)))
	save(3)
	moved := 0
	for _, e := range readSaved(t, dir) {
		if e.Backend == b2.addr {
			moved++
		}
	}
	if moved != 2 {
		t.Errorf("%d sessions have moved in the file, want 2", moved)
	}
}

// A file that is broken costs its sessions only.
func TestUDPBrokenFile(t *testing.T) {
	a := newUDPBackend(t, "a")
	for _, text := range []string{"", "{", `[{"id":"x"}]`, `[{"peer":"nonsense"}]`, "[{}]", "null", `{"a":1}`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, savedFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, Options{Loops: 1, StateDir: dir})
		w.serve(udpOf(service("dns", udpVIP, a.addr)))
		ask(t, udpClientTo(t, udpVIP), a)
		w.close()
		if list := readSaved(t, dir); len(list) == 0 {
			t.Errorf("after %q nothing was kept", text)
		}
	}
}

// BenchmarkUDPSave is how long the loop is held, for each of 20,000 sessions.
func BenchmarkUDPSave(b *testing.B) {
	w := newWorld(b, Options{Loops: 1})
	loop := w.relay.workers[0]
	const n = 20_000
	socket := &udpSocket{w: loop, l: &udpListener{}, sessions: make(map[udpKey]*udpSession)}
	backend := &sched.Backend{Backend: &lb.Backend{Address: udpVIP}}
	for i := range n {
		s := &udpSession{u: socket, backend: backend, source: udpVIP}
		s.peer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1)
		s.local = udpVIP
		s.rec = w.registry.Open(flow.Spec{Proto: flow.UDP, Service: "dns", Client: s.peer, Frontend: udpVIP})
		s.rec.Attach(flow.PathUserspace, s)
		socket.sessions[s.key()] = s
	}
	_ = loop.loop.Call(func() { loop.udp.sockets[socket.l] = socket })
	var list []liveSession
	for b.Loop() {
		_ = loop.loop.Call(func() { list = loop.udp.appendTo(list[:0]) })
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/session")
	_ = loop.loop.Call(func() { delete(loop.udp.sockets, socket.l) })
	for _, s := range socket.sessions {
		s.rec.Finish(flow.ByBaton, flow.ReasonShutdown)
	}
}

// FuzzSavedSessions reads anything, and reads again what it has read and written.
func FuzzSavedSessions(f *testing.F) {
	f.Add([]byte("[]"))
	f.Add([]byte(`[{"id":"0000000000000007","startedAt":"2026-01-02T03:04:05Z","peer":"192.0.2.1:1","client":"[2001:db8::1]:5","frontend":"10.96.0.10:53","backend":"10.1.1.1:53","source":"10.1.1.2:40000","bytesToBackend":1}]`))
	f.Add([]byte(`[{"id":"0000000000000007","peer":"[::ffff:192.0.2.1]:1","frontend":"[fe80::1%lo]:53","backend":"10.1.1.1:53","seen":"2026-01-02T03:04:05Z"}]`))
	written := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, b []byte) {
		first, err := decodeSaved(b, written)
		if err != nil {
			return
		}
		var list []savedSession
		for _, e := range first {
			list = append(list, e)
		}
		again, err := json.Marshal(list)
		if err != nil {
			t.Skip(err) // a year that JSON has no words for
		}
		second, err := decodeSaved(again, written.Add(time.Hour))
		if err != nil || len(second) != len(first) {
			t.Fatalf("%d sessions became %d, %v: %s", len(first), len(second), err, again)
		}
		for k, e := range second {
			if old, ok := first[k]; !ok || old.ID != e.ID || old.Backend != e.Backend || !old.Seen.Equal(e.Seen) {
				t.Fatalf("%+v became %+v", old, e)
			}
		}
	})
}
