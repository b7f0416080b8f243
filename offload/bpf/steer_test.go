package bpf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/clock"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/steer/program"
)

// steerRoad is a balancer that steers, between a client and backends.
type steerRoad struct {
	*testnet.Star
	flows  *Flows
	steer  *Steer
	firsts uint16 // packets
}

func newSteerRoad(t testing.TB, backends int, o FlowsOptions) *steerRoad {
	t.Helper()
	r := &steerRoad{Star: testnet.NewStar(t, backends)}
	if o.Capacity == 0 {
		o.Capacity = 16
	}
	r.flows = newFlows(t, r.Balancer, o)
	must(t, r.flows.AttachAll())
	r.open(t)
	return r
}

func (r *steerRoad) open(t testing.TB) {
	t.Helper()
	var err error
	r.steer, err = r.flows.Steer()
	must(t, err)
}

// steerTimes are a service's that says nothing.
var steerTimes = program.Times{
	Opening: 5 * time.Second, Idle: time.Hour, HalfClosed: time.Minute, Closed: 10 * time.Second, UDPIdle: time.Minute,
}

// kind is one of what mode steer carries.
type kind struct {
	proto flow.Proto
	ipv6  bool
	keep  bool // clients' addresses
}

func (k kind) String() string {
	return fmt.Sprintf("%s/%s/%s", k.proto, map[bool]string{false: "IPv4", true: "IPv6"}[k.ipv6], map[bool]string{false: "masked", true: "kept"}[k.keep])
}

func eachSteered(t *testing.T, protos []flow.Proto, f func(t *testing.T, k kind)) {
	for _, proto := range protos {
		for _, ipv6 := range []bool{false, true} {
			for _, keep := range []bool{false, true} {
				k := kind{proto, ipv6, keep}
				t.Run(k.String(), func(t *testing.T) { f(t, k) })
			}
		}
	}
}

var tcpAndUDP = []flow.Proto{flow.TCP, flow.UDP}

// vip is where clients go; nothing of the host has the address.
func (k kind) vip(port uint16) lb.FrontendKey {
	if k.ipv6 {
		return lb.FrontendKey{Proto: k.proto, Address: netip.AddrPortFrom(vips[1], port)}
	}
	return lb.FrontendKey{Proto: k.proto, Address: netip.AddrPortFrom(vips[0], port)}
}

func (k kind) of(p testnet.Port) netip.Addr {
	if k.ipv6 {
		return p.IP6
	}
	return p.IP4
}

const (
	theService program.ServiceID = 7
	thePool    program.PoolID    = 9
)

// program tells the program of a service at a VIP with all backends, numbered from 1, and how one is chosen. change may
// change what it is told.
func (r *steerRoad) program(t testing.TB, k kind, how program.Answer, change func(*program.Service, []program.Backend, *program.Pool, *program.Frontend)) lb.FrontendKey {
	t.Helper()
	service := program.Service{ID: theService, Name: "web", Times: steerTimes}
	pool := program.Pool{ID: thePool, Service: theService, Answer: how}
	frontend := program.Frontend{FrontendKey: k.vip(frontendPort), Service: theService, Outside: thePool, Keep: k.keep}
	var backends []program.Backend
	for i, l := range r.BackendLinks {
		b := program.Backend{
			ID: program.BackendID(i + 1), Service: theService, Address: netip.AddrPortFrom(k.of(l.B), backendPort), Takes: true,
			Masked: k.of(l.A), Keep: program.Keep{Near: true, Far: true, Beside: true},
		}
		backends = append(backends, b)
		pool.Members = append(pool.Members, b.ID)
	}
	pool.Table = slices.Repeat(pool.Members, 50)
	if change != nil {
		change(&service, backends, &pool, &frontend)
	}
	must(t, r.steer.SetService(service))
	for _, b := range backends {
		must(t, r.steer.SetBackend(b))
	}
	must(t, r.steer.SetPool(pool))
	must(t, r.steer.SetFrontend(frontend))
	t.Cleanup(func() {
		if r.flows.closed {
			return
		}
		must(t, r.steer.DeleteFrontend(frontend.FrontendKey))
		r.deleteAll(t)
	})
	return frontend.FrontendKey
}

// soon is later than anything that was seen.
func soon() uint64 { return uint64(clock.Monotonic() + time.Minute) }

func (r *steerRoad) all(t testing.TB) (all []program.Flow) {
	t.Helper()
	must(t, r.steer.Walk(soon(), func(f program.Flow) bool { all = append(all, f); return true }))
	for i := range all { // of closed ones a walk does not know all
		if whole, ok := r.steer.Lookup(all[i].Ref); ok {
			all[i] = whole
		}
	}
	return all
}

func (r *steerRoad) deleteAll(t testing.TB) {
	t.Helper()
	all := r.all(t)
	n, err := r.steer.Delete(all, true)
	if err != nil || n != len(all) {
		t.Errorf("deleted %d of %d flows, %v", n, len(all), err)
	}
	if left := r.steer.settings.Flows; left != 0 {
		t.Errorf("%d flows are counted, and there are none", left)
	}
	for id := range r.BackendLinks {
		if n := r.steer.Open(program.BackendID(id + 1)); n != 0 {
			t.Errorf("backend %d has %d open flows, and there are none", id+1, n)
		}
	}
}

// only is the one flow there is.
func (r *steerRoad) only(t testing.TB) program.Flow {
	t.Helper()
	all := r.all(t)
	if len(all) != 1 {
		t.Fatalf("there are %d flows: %+v", len(all), all)
	}
	return all[0]
}

func (r *steerRoad) dial(t testing.TB, k lb.FrontendKey, from netip.AddrPort) net.Conn {
	t.Helper()
	c, err := r.try(k, from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (r *steerRoad) try(k lb.FrontendKey, from netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := r.Client.DialContext(ctx, k.Proto.String(), from, k.Address)
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	return c, err
}

// tellPeer answers with who has asked, then echoes.
func tellPeer(c net.Conn) {
	_, _ = fmt.Fprintln(c, c.RemoteAddr())
	testnet.Echo(c)
}

// serve has every backend tell who asks it, by either protocol.
func (r *steerRoad) serve() {
	for i, h := range r.Backends {
		h.Serve(backendPort, tellPeer)
		for _, addr := range []netip.Addr{r.BackendLinks[i].B.IP4, r.BackendLinks[i].B.IP6} {
			h.ServeUDP(netip.AddrPortFrom(addr, backendPort), testnet.TellPeerUDP)
		}
	}
}

// peerOf is what such a backend says.
func peerOf(c net.Conn) (netip.AddrPort, error) {
	_, udp := c.(*net.UDPConn)
	if !udp {
		name, err := testnet.ReadName(c)
		if err != nil {
			return netip.AddrPort{}, err
		}
		return netip.ParseAddrPort(name)
	}
	if _, err := io.WriteString(c, "?"); err != nil {
		return netip.AddrPort{}, err
	}
	b := make([]byte, 128)
	n, err := c.Read(b)
	if err != nil {
		return netip.AddrPort{}, err
	}
	name, _, _ := strings.Cut(string(b[:n]), "\n")
	return netip.ParseAddrPort(name)
}

// whoAmI asks a backend that tells who asks it.
func whoAmI(t testing.TB, c net.Conn) netip.AddrPort {
	t.Helper()
	me, err := peerOf(c)
	if err != nil {
		t.Fatal(err)
	}
	return me
}

// TestSteer: a backend answers as if it were the frontend, and sees whom it is to see.
func TestSteer(t *testing.T) {
	r := newSteerRoad(t, 2, FlowsOptions{})
	r.serve()
	eachSteered(t, tcpAndUDP, func(t *testing.T, k kind) {
		vip := r.program(t, k, program.ByTable, nil)
		c := r.dial(t, vip, netip.AddrPort{})
		me := whoAmI(t, c)
		f := r.only(t)
		if f.Local != me || f.Client != addrPortOf(c.LocalAddr()) || f.Frontend != vip.Address || f.Proto != k.proto || f.Service != theService {
			t.Errorf("the backend sees %s, the flow is %+v", me, f)
		}
		if kept := f.Local == f.Client; kept != k.keep {
			t.Errorf("the client %s is seen as %s", f.Client, f.Local)
		}
		if !k.keep && (me.Port() < defaultSteerFirst || me.Port() > defaultSteerLast) {
			t.Errorf("%s has another port than it may", me)
		}
		if f.State != program.Open || r.steer.Open(f.Backend) != 1 || f.Picked != flow.ByAlgorithm {
			t.Errorf("%+v, %d open", f, r.steer.Open(f.Backend))
		}
		if got, ok := r.steer.Lookup(f.Ref); !ok || got.Ref != f.Ref {
			t.Errorf("looked up %+v, %t", got, ok)
		}
		if f.Counters.PacketsToBackend == 0 || f.Counters.PacketsToClient == 0 || f.Counters.BytesToClient == 0 || f.LastSeen == 0 {
			t.Errorf("%+v", f.Counters)
		}
	})
	c := r.steer.Counts()
	if c.Tables != 8 || c.Full+c.NoPort+c.Stray+c.OverLimit+c.Refused != 0 {
		t.Errorf("%+v", c)
	}
}

func addrPortOf(a net.Addr) netip.AddrPort { return netip.MustParseAddrPort(a.String()) }

// pair is a connection of the client with the vip, and what the first backend has of it.
func (r *steerRoad) pair(t *testing.T, k kind, vip lb.FrontendKey) (client, backend *net.TCPConn) {
	t.Helper()
	ln, err := r.Backends[0].Listen("tcp", netip.AddrPortFrom(k.of(r.BackendLinks[0].B), backendPort))
	must(t, err)
	defer ln.Close()
	client = r.dial(t, vip, netip.AddrPort{}).(*net.TCPConn)
	c, err := ln.Accept()
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return client, c.(*net.TCPConn)
}

// TestSteerBulk: every byte arrives, and each counts once; both sides close.
func TestSteerBulk(t *testing.T) {
	n := int64(testnet.Scaled(4 << 20))
	r := newSteerRoad(t, 1, FlowsOptions{})
	eachSteered(t, []flow.Proto{flow.TCP}, func(t *testing.T, k kind) {
		vip := r.program(t, k, program.ByTable, nil)
		client, backend := r.pair(t, k, vip)
		exchange(t, client, backend, n)
		testnet.Eventually(t, patience, "the flow is over", func() error {
			if f := r.only(t); f.State != program.Closed || f.Reset || f.ClosedBy == "" {
				return fmt.Errorf("%+v", f)
			}
			return nil
		})
		f := r.only(t)
		if f.Counters.BytesToBackend != uint64(n) || f.Counters.BytesToClient != uint64(n) || r.steer.Open(f.Backend) != 0 {
			t.Errorf("%+v, %d open", f, r.steer.Open(f.Backend))
		}
	})
}

// TestSteerLossy: what is sent again counts once, and checksums are right where no device makes them.
func TestSteerLossy(t *testing.T) {
	n := int64(testnet.Scaled(1 << 20))
	r := newSteerRoad(t, 1, FlowsOptions{})
	r.Client.TCP(testnet.TCPSpec{})
	for _, l := range []testnet.Link{r.ClientLink, r.BackendLinks[0]} {
		l.A.NoOffloads()
		l.B.NoOffloads()
	}
	loss := r.BackendLinks[0].B.Lose(10)
	defer loss.Stop()
	eachSteered(t, onlyTCP, func(t *testing.T, k kind) {
		vip := r.program(t, k, program.ByTable, nil)
		client, backend := r.pair(t, k, vip)
		exchange(t, client, backend, n)
		if c := r.only(t).Counters; c.BytesToBackend != uint64(n) || c.BytesToClient != uint64(n) {
			t.Errorf("%+v", c)
		}
	})
}

// TestSteerRefuse: where there is nobody, clients hear it, or nothing.
func TestSteerRefuse(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{})
	eachSteered(t, tcpAndUDP, func(t *testing.T, k kind) {
		before := r.steer.Counts()
		vip := r.program(t, k, program.Refuse, nil)
		if _, err := ask(r.Client, vip, errRefused); !errors.Is(err, errRefused) {
			t.Errorf("refuse: %v", err)
		}
		for how, want := range map[program.Answer]uint32{program.Drop: dropped, program.ToStack: toStack} {
			r.program(t, k, how, nil)
			if got := r.first(t, k); got != want {
				t.Errorf("answer %d: verdict %d, want %d", how, int32(got), int32(want))
			}
		}
		if after := r.steer.Counts(); after.Refused == before.Refused || after.Dropped != before.Dropped+1 {
			t.Errorf("%+v", after)
		}
	})
}
