package relay

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb/relay/proxyproto"
)

// A session is recorded with what it has carried, and when.
func TestUDPRecord(t *testing.T) {
	b := newUDPBackend(t, "a")
	w := newWorld(t, Options{Loops: 1})
	w.serve(udpOf(service("dns", udpVIP, b.addr)))
	c := udpClientTo(t, udpVIP)
	began := time.Now()
	for range 3 {
		ask(t, c, b)
	}
	rec := w.record(flow.Established)
	testnet.Eventually(t, patience, "the last answer is counted", func() error {
		if n := rec.View().PacketsToClient; n != 3 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	v := rec.View()
	if v.BytesToBackend != 3 || v.BytesToClient != 9 || v.PacketsToBackend != 3 || v.PacketsToClient != 3 {
		t.Errorf("%d bytes in %d datagrams to the backend, %d in %d back", v.BytesToBackend, v.PacketsToBackend, v.BytesToClient, v.PacketsToClient)
	}
	if v.LastSeenAt.Before(began) || v.LastSeenAt.After(time.Now()) {
		t.Errorf("last seen at %s, it is %s", v.LastSeenAt, time.Now())
	}
	if v.Client.String() != c.LocalAddr().String() || v.Frontend != udpVIP || v.Backend != b.addr || v.Service != "dns" {
		t.Errorf("recorded as %+v", v)
	}
	w.registry.Records()[0].End(flow.ByBaton, flow.ReasonAdminReset)
	wantEnd(t, w.ended(c.LocalAddr()), flow.ByBaton, flow.ReasonAdminReset)
	ask(t, c, b) // a new one
	w.sessions(1)
}

// What waits at a frontend when its loop comes to it is sorted by client: each
// gets its own session, and nothing is lost, doubled or cut.
func TestUDPBatchOfManyClients(t *testing.T) {
	b := newUDPBackend(t, "a")
	b.mute()
	w := newWorld(t, Options{Loops: 1})
	w.serve(udpOf(service("dns", udpVIP, b.addr)))
	resume := w.pause(0)
	const clients, each = 40, 25
	var conns []*net.UDPConn
	for range clients {
		conns = append(conns, udpClientTo(t, udpVIP))
	}
	want := make(map[string]bool)
	for i := range each {
		for j, c := range conns {
			data := fmt.Sprintf("%d from %d ", i, j) + string(bytes.Repeat([]byte{'x'}, i*j))
			for range 1 + j%2 { // some come twice in a row
				send(t, c, data)
			}
			want[data] = true
		}
	}
	resume()
	wantCount(t, each*(clients+clients/2), b)
	for _, got := range b.got {
		if !want[got] {
			t.Fatalf("%q has come, which nobody sent", got)
		}
	}
	if n := len(b.senders()); n != clients {
		t.Errorf("the backend saw %d sources of %d clients", n, clients)
	}
	w.sessions(clients)
}

// The very session that was sent for last can be the one that makes room: what it
// has collected is sent.
func TestUDPEvictsTheSessionAtHand(t *testing.T) {
	b := newUDPBackend(t, "a")
	b.mute()
	w := newWorld(t, Options{Loops: 1})
	svc := udpOf(service("dns", udpVIP, b.addr))
	svc.Limits.UDPSessions = 1
	w.serve(svc)
	resume := w.pause(0)
	x, y := udpClientTo(t, udpVIP), udpClientTo(t, udpVIP)
	const rounds = 20
	for range rounds {
		send(t, x, "x")
		send(t, y, "y")
	}
	resume()
	wantCount(t, 2*rounds, b)
	w.sessions(1)
	if n := len(w.registry.LastEnded()); n != 2*rounds-1 {
		t.Errorf("%d sessions have made room, want %d", n, 2*rounds-1)
	}
	for _, v := range w.registry.LastEnded() {
		wantEnd(t, v, flow.ByBaton, flow.ReasonEvicted)
		if v.PacketsToBackend != 1 {
			t.Errorf("an evicted session has sent %d datagrams", v.PacketsToBackend)
		}
	}
}

// The errors of clients that have gone are not those of the client that is there.
func TestUDPStormOfClosedClients(t *testing.T) {
	b := newUDPBackend(t, "a")
	b.mute()
	w := newWorld(t, Options{Loops: 1})
	wild := netip.AddrPortFrom(netip.IPv4Unspecified(), 54)
	svc := udpOf(service("dns", udpVIP, b.addr))
	svc.Frontends = append(svc.Frontends, udpOf(service("", wild)).Frontends...)
	w.serve(svc)
	for _, to := range []netip.AddrPort{udpVIP, netip.MustParseAddrPort("127.0.3.3:54")} {
		const gone = 100
		before := b.count()
		live := udpClientTo(t, to)
		send(t, live, "live")
		wantCount(t, before+1, b)
		var leaving []*net.UDPConn
		for range gone {
			c := udpClientTo(t, to)
			send(t, c, "gone")
			leaving = append(leaving, c)
		}
		wantCount(t, before+1+gone, b)
		for _, c := range leaving {
			c.Close()
		}
		resume := w.pause(0)
		for range 3 {
			for _, to := range b.senders() {
				_, _ = b.conn.WriteToUDPAddrPort([]byte("answer"), to)
			}
		}
		resume()
		for i := range 3 {
			if got, err := take(live, patience); err != nil || got != "answer" {
				t.Fatalf("answer %d: %q, %v", i, got, err)
			}
		}
		for _, rec := range w.sessions(1) {
			rec.End(flow.ByBaton, flow.ReasonAdminReset)
		}
		w.sessions(0)
		ended := 0
		for _, v := range w.registry.LastEnded() {
			if v.EndedBy == flow.ByClient && v.Reason == flow.ReasonNetworkError && v.Frontend == to {
				ended++
			}
		}
		if ended != gone {
			t.Errorf("%s: %d sessions were ended by their client, want %d", to, ended, gone)
		}
		b.forget()
	}
	if n := w.drops(flow.DropUnreachable); n != 0 {
		t.Errorf("%d answers were dropped", n)
	}
}

// A datagram without a header that is good costs nothing but itself.
func TestUDPAcceptProxy(t *testing.T) {
	b := newUDPBackend(t, "a")
	w := newWorld(t, Options{Loops: 1})
	svc := udpOf(service("dns", udpVIP, b.addr))
	svc.AcceptProxy = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	w.serve(svc)
	c := udpClientTo(t, udpVIP)
	head := func(tr proxyproto.Transport, v proxyproto.Version, from, to string) string {
		src, _ := netip.ParseAddrPort(from)
		dst, _ := netip.ParseAddrPort(to)
		return string(proxyproto.Append(nil, v, tr, src, dst))
	}
	const one, two, asked = "192.0.2.1:1000", "[2001:db8::1]:2000", "[2001:db8::99]:53"
	good := head(proxyproto.Datagram, proxyproto.V2, one, "192.0.2.99:53")
	for i, data := range []string{
		"", "no header", good[:len(good)-1], head(proxyproto.Stream, proxyproto.V2, one, "192.0.2.99:53") + "tcp",
		head(proxyproto.Stream, proxyproto.V1, one, "192.0.2.99:53") + "v1",
	} {
		send(t, c, data)
		w.wantDrops(flow.DropProxyHeader, uint64(i+1))
	}
	if n := b.count(); n != 0 {
		t.Fatalf("%d datagrams with bad headers have come", n)
	}
	for _, tc := range []struct{ header, client, frontend string }{
		{good, one, "192.0.2.99:53"},
		{head(proxyproto.Datagram, proxyproto.V2, two, asked), two, asked},
		{head(proxyproto.Datagram, proxyproto.V2, "", ""), c.LocalAddr().String(), udpVIP.String()},
	} {
		for _, data := range []string{"", "x", "xyz"} {
			send(t, c, tc.header+data)
			if got, err := take(c, patience); err != nil || got != "a "+data {
				t.Fatalf("%s: got %q, %v", tc.client, got, err)
			}
		}
		found := false
		for _, rec := range w.registry.Records() {
			v := rec.View()
			if v.Client.String() == tc.client {
				found = v.Frontend.String() == tc.frontend && v.PacketsToBackend == 3 && v.BytesToBackend == 4
			}
		}
		if !found {
			t.Errorf("no record of %s at %s: %+v", tc.client, tc.frontend, w.registry.Records()[0].View())
		}
	}
	w.sessions(3)
}

// A datagram that its header makes too large is dropped; the others are not.
func TestUDPTooBigWithItsHeader(t *testing.T) {
	b := newUDPBackend(t, "a")
	b.mute()
	w := newWorld(t, Options{Loops: 1})
	svc := udpOf(service("dns", udpVIP, b.addr))
	svc.ClientAddress = "proxy-v2"
	w.serve(svc)
	c := udpClientTo(t, udpVIP)
	const header = 28
	resume := w.pause(0)
	for _, n := range []int{65507 - header, 65507 - header + 1, 65507, 0, 10} {
		send(t, c, string(make([]byte, n)))
	}
	resume()
	wantCount(t, 3, b)
	w.wantDrops(flow.DropTooBig, 2)
	src := netip.MustParseAddrPort(c.LocalAddr().String())
	want := string(proxyproto.Append(nil, proxyproto.V2, proxyproto.Datagram, src, udpVIP))
	for i, n := range []int{65507 - header, 0, 10} {
		if got := b.got[i]; len(got) != header+n || got[:header] != want {
			t.Errorf("datagram %d has %d bytes, begins with %x", i, len(got), got[:min(len(got), header)])
		}
	}
	if v := w.sessions(1)[0].View(); v.BytesToBackend != 65507-header+10 || v.PacketsToBackend != 3 {
		t.Errorf("counted %d bytes in %d datagrams", v.BytesToBackend, v.PacketsToBackend)
	}
}

// An IPv4 client is served by an IPv6 backend, and the other way round; what one
// family cannot carry is dropped.
func TestUDPAcrossFamilies(t *testing.T) {
	v4, v6 := newUDPBackend(t, "v4"), udpBackendAt(t, "v6", netip.MustParseAddrPort("[::1]:0"))
	w := newWorld(t, Options{Loops: 1})
	front6 := netip.MustParseAddrPort("[::1]:53")
	w.serve(udpOf(service("to6", udpVIP, v6.addr)), udpOf(service("to4", front6, v4.addr)))
	ask(t, udpClientTo(t, udpVIP), v6)
	big := udpClientTo(t, front6)
	ask(t, big, v4)
	send(t, big, string(make([]byte, 65527)))
	w.wantDrops(flow.DropTooBig, 1)
	send(t, big, string(make([]byte, 65507)))
	wantCount(t, 2, v4)
	// The answer, with its name before it, is too large for IPv4.
	small := udpClientTo(t, udpVIP)
	send(t, small, string(make([]byte, 65507)))
	w.wantDrops(flow.DropTooBig, 2) // the answer of 65,510 bytes
}

// A frontend's socket that waits for its error queue does not miss datagrams.
func TestUDPReadyWithErrorsAndData(t *testing.T) {
	b := newUDPBackend(t, "a")
	w := newWorld(t, Options{Loops: 1})
	w.serve(udpOf(service("dns", udpVIP, b.addr)))
	c, gone := udpClientTo(t, udpVIP), udpClientTo(t, udpVIP)
	ask(t, gone, b)
	resume := w.pause(0)
	source := b.senders()[0]
	gone.Close()
	for range 5 {
		_, _ = b.conn.WriteToUDPAddrPort([]byte("late"), source)
	}
	for range 300 { // more than a turn takes
		send(t, c, "x")
	}
	resume()
	wantCount(t, 301, b)
	testnet.Eventually(t, patience, "the session of the closed client has ended", func() error {
		if n := w.registry.Len(); n != 1 {
			return fmt.Errorf("%d are live", n)
		}
		return nil
	})
}

// Nothing in the path of a datagram allocates.
func TestUDPAllocatesNothing(t *testing.T) {
	sink, err := net.ListenPacket("udp", "127.0.2.1:0") // read by nobody: that would allocate
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	w := newWorld(t, Options{Loops: 1})
	w.serve(udpOf(service("dns", udpVIP, sink.LocalAddr().(*net.UDPAddr).AddrPort())))
	c := udpClientTo(t, udpVIP)
	send(t, c, "x")
	w.record(flow.Established)
	loop := w.relay.workers[0]
	var s *udpSession
	_ = loop.loop.Call(func() {
		for _, u := range loop.udp.sockets {
			for _, s = range u.sessions {
			}
		}
	})
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var allocs float64
	data := []byte("0123456789")
	_ = loop.loop.Call(func() {
		allocs = testing.AllocsPerRun(50, func() {
			_ = raw.Write(func(fd uintptr) bool {
				for range 20 {
					_, _ = unix.Write(int(fd), data)
				}
				return true
			})
			s.u.receive()
		})
	})
	if allocs > 0 {
		t.Errorf("%v allocations for 20 datagrams", allocs)
	}
	if n := s.packets[toBackend].Load(); n < 1000 {
		t.Errorf("only %d datagrams were sent", n)
	}
}
