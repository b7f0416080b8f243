package bpf

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

func TestVIPAnswersAtFrontendsOnly(t *testing.T) {
	g := newGround(t, GuardOptions{})
	eachKind(t, func(t *testing.T, at func(uint16) lb.FrontendKey) {
		ssh, web := at(sshPort), at(80)
		vip := ssh.Address.Addr()
		g.serve(t, web, "web")
		g.expect(t, ssh, "ssh", nil)
		g.update(t, GuardUpdate{Protect: []netip.Addr{vip}})
		g.expect(t, ssh, "", errRefused)
		g.expect(t, at(23), "", errRefused)
		g.expect(t, web, "", errRefused)
		g.update(t, GuardUpdate{Rules: map[lb.FrontendKey]Rule{web: {All: AnswerOwn}}})
		g.expect(t, web, "web", nil)
		g.expect(t, ssh, "", errRefused)
		g.update(t, GuardUpdate{Forget: []lb.FrontendKey{web}})
		g.expect(t, web, "", errRefused)
		g.update(t, GuardUpdate{Unprotect: []netip.Addr{vip}})
		g.expect(t, ssh, "ssh", nil)
		g.expect(t, web, "web", nil)
		g.update(t, GuardUpdate{Forget: []lb.FrontendKey{web}, Unprotect: []netip.Addr{vip}}) // once more
	})
	for _, a := range []netip.Addr{g.host.IP4, g.host.IP6} {
		for _, proto := range []flow.Proto{flow.TCP, flow.UDP} {
			g.expect(t, lb.FrontendKey{Proto: proto, Address: netip.AddrPortFrom(a, sshPort)}, "ssh", nil)
		}
	}
}

func TestAnswers(t *testing.T) {
	g := newGround(t, GuardOptions{})
	eachKind(t, func(t *testing.T, at func(uint16) lb.FrontendKey) {
		web := at(sshPort) // the port of somebody else: nothing may fall through to it
		g.update(t, GuardUpdate{Rules: map[lb.FrontendKey]Rule{web: {All: AnswerSilent}}})
		g.expect(t, web, "", errSilence)
		g.update(t, GuardUpdate{Rules: map[lb.FrontendKey]Rule{web: {All: AnswerRefuse}}})
		g.expect(t, web, "", errRefused)
		g.update(t, GuardUpdate{Rules: map[lb.FrontendKey]Rule{web: {All: AnswerShared}}})
		g.expect(t, web, "", errRefused) // nothing is shared yet
		g.update(t, GuardUpdate{Rules: map[lb.FrontendKey]Rule{web: {All: AnswerOwn}}})
		g.expect(t, web, "ssh", nil)
	})
}

func TestEstablishedFlowsAreNotTouched(t *testing.T) {
	g := newGround(t, GuardOptions{})
	for _, vip := range vips {
		here := g.client.IP4
		if vip.Is6() {
			here = g.client.IP6
		}
		tcp, err := g.client.Dial("tcp", netip.AddrPortFrom(vip, sshPort))
		if err != nil {
			t.Fatal(err)
		}
		defer tcp.Close()
		if _, err := testnet.ReadName(tcp); err != nil {
			t.Fatal(err)
		}
		from, to := netip.AddrPortFrom(here, 5000), netip.AddrPortFrom(vip, 5001)
		udp := dialUDP(t, g.client, from, to)
		server := dialUDP(t, g.host, to, from)

		g.update(t, GuardUpdate{Protect: []netip.Addr{vip}})
		if err := testnet.Ask(tcp, "still there?"); err != nil {
			t.Errorf("connection to %s: %v", vip, err)
		}
		if _, err := udp.Write([]byte("still there?")); err != nil {
			t.Errorf("connected socket at %s: %v", vip, err)
		}
		b := make([]byte, 64)
		if n, err := server.Read(b); err != nil || string(b[:n]) != "still there?" {
			t.Errorf("connected socket at %s got %q, %v", vip, b[:n], err)
		}
	}
}

func dialUDP(t *testing.T, h *testnet.Host, from, to netip.AddrPort) net.Conn {
	t.Helper()
	conn, err := h.DialContext(t.Context(), "udp", from, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	return conn
}

func TestPingIsNotTouched(t *testing.T) {
	g := newGround(t, GuardOptions{})
	g.update(t, GuardUpdate{Protect: vips})
	for _, vip := range vips {
		if err := ping(t, g.client, vip); err != nil {
			t.Errorf("ping %s: %v", vip, err)
		}
	}
}

// ping sends an echo request and waits for any answer.
func ping(t *testing.T, h *testnet.Host, to netip.Addr) (err error) {
	t.Helper()
	request := []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0} // type, code, checksum, id, sequence
	network := "ip4:icmp"
	if to.Is6() {
		request, network = []byte{128, 0, 0, 0, 0, 0, 0, 0}, "ip6:ipv6-icmp" // the kernel adds the checksum
	}
	var conn net.Conn
	h.Do(func() { conn, err = net.Dial(network, to.String()) })
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write(request); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 128))
	return err
}

func TestCloseOpensEverything(t *testing.T) {
	g := newGround(t, GuardOptions{})
	ssh := lb.FrontendKey{Proto: flow.TCP, Address: netip.AddrPortFrom(vips[0], sshPort)}
	g.update(t, GuardUpdate{Protect: vips})
	runtime.GC() // a link that nobody keeps would go
	runtime.GC()
	g.expect(t, ssh, "", errRefused)
	for range 2 {
		if err := g.guard.Close(); err != nil {
			t.Fatal(err)
		}
	}
	g.expect(t, ssh, "ssh", nil)
	if err := g.guard.Update(GuardUpdate{Protect: vips}); !errors.Is(err, ErrClosed) {
		t.Errorf("update of a closed guard: %v", err)
	}
	if _, err := g.guard.Counts(); !errors.Is(err, ErrClosed) {
		t.Errorf("counts of a closed guard: %v", err)
	}
	if err := g.guard.Share(0); !errors.Is(err, ErrClosed) {
		t.Errorf("share with a closed guard: %v", err)
	}
}

func TestTablesGrow(t *testing.T) {
	g := newGround(t, GuardOptions{Frontends: 8})
	web := lb.FrontendKey{Proto: flow.TCP, Address: netip.AddrPortFrom(vips[0], 80)}
	g.serve(t, web, "web")
	g.update(t, GuardUpdate{Protect: vips, Rules: map[lb.FrontendKey]Rule{web: {All: AnswerOwn}}})
	rules, more := make(map[lb.FrontendKey]Rule), make([]netip.Addr, 0, 3000)
	for i := range 3000 {
		a := netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)})
		more = append(more, a)
		rules[lb.FrontendKey{Proto: flow.TCP, Address: netip.AddrPortFrom(a, 80)}] = Rule{All: AnswerRefuse}
	}
	before, err := g.guard.Counts()
	if err != nil {
		t.Fatal(err)
	}
	g.update(t, GuardUpdate{Protect: more, Rules: rules})
	g.expect(t, web, "web", nil)
	for _, vip := range vips {
		g.expect(t, lb.FrontendKey{Proto: flow.UDP, Address: netip.AddrPortFrom(vip, sshPort)}, "", errRefused)
	}
	if after, err := g.guard.Counts(); err != nil || after.Closed < before.Closed+4 {
		t.Errorf("counts before %+v, after %+v, %v", before, after, err)
	}
	for _, f := range []struct {
		name string
		n    func() (int, error)
		want int
	}{
		// The silent sockets have entries too.
		{"frontends", func() (int, error) { return entries[guardFrontend](g.guard.objects.GuardFrontends) }, 3000 + 1 + 4},
		{"VIPs", func() (int, error) { return entries[guardAddress](g.guard.objects.GuardVips) }, 3000 + 2},
	} {
		if n, err := f.n(); n != f.want || err != nil {
			t.Errorf("%d %s, %v; want %d", n, f.name, err, f.want)
		}
	}
}

func entries[K any](m *ebpf.Map) (n int, err error) {
	var (
		key   K
		value []byte
	)
	all := m.Iterate()
	for all.Next(&key, &value) {
		n++
	}
	return n, all.Err()
}

func TestWithoutRights(t *testing.T) {
	testnet.RequireRoot(t)
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capset(&hdr, &make([]unix.CapUserData, 2)[0]); err != nil {
			result <- err
			return
		}
		_, err := AttachGuard(GuardOptions{})
		result <- err
	}()
	if err := <-result; !errors.Is(err, ErrPermission) {
		t.Errorf("got %v, want %v", err, ErrPermission)
	}
}

// A guard that is loaded beside another one and told everything takes over from it
// without anything being open, or closed, in between.
func TestGuardTakesOver(t *testing.T) {
	g := newGround(t, GuardOptions{})
	web := lb.FrontendKey{Proto: flow.TCP, Address: netip.AddrPortFrom(vips[0], 80)}
	ssh := lb.FrontendKey{Proto: flow.TCP, Address: netip.AddrPortFrom(vips[0], sshPort)}
	g.serve(t, web, "web")
	all := GuardUpdate{Protect: vips, Rules: map[lb.FrontendKey]Rule{web: {All: AnswerOwn}}}
	g.update(t, all)
	var next *Guard
	var err error
	g.host.Do(func() { next, err = LoadGuard(GuardOptions{Frontends: 1}) })
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if err := next.Update(GuardUpdate{Protect: vips}); err != nil { // and its tables grow
		t.Fatal(err)
	}
	g.expect(t, web, "web", nil) // it sees nothing yet
	if err := next.Update(all); err != nil {
		t.Fatal(err)
	}
	g.host.Do(func() { err = next.Attach() })
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		g.expect(t, web, "web", nil)
		g.expect(t, ssh, "", errRefused)
	}
	check()
	if err := g.guard.Close(); err != nil {
		t.Fatal(err)
	}
	check()
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	g.expect(t, ssh, "ssh", nil)
	g.host.Do(func() { err = next.Attach() })
	if !errors.Is(err, ErrClosed) {
		t.Errorf("attach a closed guard: %v", err)
	}
}
