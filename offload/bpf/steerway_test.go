package bpf

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb/steer/program"
)

// narrow makes the balancer's ways carry no more than that.
func (r *steerRoad) narrow(t testing.TB, mtu int) {
	t.Helper()
	way := road{Star: r.Star}
	way.narrow(t, r.BackendLinks[0].B, r.BackendLinks[0].A.Dev, mtu)
	way.narrow(t, r.ClientLink.B, r.ClientLink.A.Dev, mtu-100)
}

// TestSteerNarrowWay: senders are told what fits, and go on with that.
func TestSteerNarrowWay(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{})
	r.narrow(t, 1400)
	eachSteered(t, onlyTCP, func(t *testing.T, k kind) {
		vip := r.program(t, k, program.ByTable, nil)
		client, backend := r.pair(t, k, vip)
		exchange(t, client, backend, 1<<20)
	})
	counts, err := r.flows.Counts()
	must(t, err)
	if counts[FlowsTooBig] == 0 || counts[FlowsFailed]+counts[FlowsNoWay] != 0 {
		t.Errorf("counted %v", counts)
	}
}

// TestSteerBigDatagrams: those that do not fit a device come in fragments, which all go one way; the answer's too.
func TestSteerBigDatagrams(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{})
	r.serve()
	eachSteered(t, []flow.Proto{flow.UDP}, func(t *testing.T, k kind) {
		c := r.dial(t, r.program(t, k, program.ByTable, nil), netip.AddrPort{})
		for _, size := range []int{100, 4000, 20000} {
			sent := bytes.Repeat([]byte("0123456789abcdef"), size/16)
			b := make([]byte, 2*size+100)
			var n int
			testnet.Eventually(t, patience, "an answer", func() error {
				if _, err := c.Write(sent); err != nil {
					return err
				}
				_ = c.SetReadDeadline(time.Now().Add(time.Second))
				var err error
				n, err = c.Read(b)
				return err
			})
			if _, got, _ := bytes.Cut(b[:n], []byte("\n")); !bytes.Equal(got, sent) {
				t.Errorf("of %d bytes %d come back, or others", len(sent), len(got))
			}
		}
	})
}

// TestSteerDatagramTooBig: whoever asks for it hears what fits.
func TestSteerDatagramTooBig(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{})
	r.serve()
	r.narrow(t, 1400)
	eachSteered(t, []flow.Proto{flow.UDP}, func(t *testing.T, k kind) {
		c := r.dial(t, r.program(t, k, program.ByTable, nil), netip.AddrPort{})
		raw, err := c.(*net.UDPConn).SyscallConn()
		must(t, err)
		level, option := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER
		if k.ipv6 {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER
		}
		must(t, raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, unix.IP_PMTUDISC_DO) }))
		must(t, err)
		testnet.Eventually(t, patience, "the client hears that a datagram is too big", func() error {
			if _, err := c.Write(make([]byte, 1440)); !errors.Is(err, unix.EMSGSIZE) {
				return errors.New("not yet")
			}
			return nil
		})
	})
}

// TestSteerDatagramIsCut: of a client whose address is kept those go on that may be fragmented on the way.
func TestSteerDatagramIsCut(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{})
	r.serve()
	k := kind{flow.UDP, false, true}
	way := road{Star: r.Star}
	way.narrow(t, r.BackendLinks[0].B, r.BackendLinks[0].A.Dev, 1300)
	c := r.dial(t, r.program(t, k, program.ByTable, nil), netip.AddrPort{})
	raw, err := c.(*net.UDPConn).SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
	}))
	must(t, err)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 85)
	testnet.Eventually(t, patience, "an answer", func() error {
		if _, err := c.Write(sent); err != nil {
			return err
		}
		b := make([]byte, 2000)
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		n, err := c.Read(b)
		if err != nil {
			return err
		}
		if _, got, _ := bytes.Cut(b[:n], []byte("\n")); !bytes.Equal(got, sent) {
			t.Errorf("of %d bytes %d come back, or others", len(sent), len(got))
		}
		return nil
	})
}

// TestSteerHairpin: who would be answered past the balancer is seen under its address, whatever is asked for.
func TestSteerHairpin(t *testing.T) {
	net := testnet.New(t)
	balancer, backend, client := net.Host("balancer"), net.Host("backend"), net.Host("client")
	balancer.Forwarding(true)
	hub := net.Host("switch")
	bridge := net.Bridge(hub, "br0")
	hosts := map[*testnet.Host]byte{balancer: 1, backend: 2, client: 3}
	devs := make(map[*testnet.Host]string)
	addr := func(h *testnet.Host, ipv6 bool) netip.Addr {
		if ipv6 {
			return netip.AddrFrom16([16]byte{0xfd, 0xaa, 15: hosts[h]})
		}
		return netip.AddrFrom4([4]byte{10, 77, 0, hosts[h]})
	}
	for h := range hosts {
		devs[h] = bridge.Join(h)
		h.AddAddr(devs[h], netip.PrefixFrom(addr(h, false), 24))
		h.AddAddr(devs[h], netip.PrefixFrom(addr(h, true), 64))
	}
	for _, h := range []*testnet.Host{backend, client} {
		for i, vip := range vips {
			h.AddRoute(netip.PrefixFrom(vip, vip.BitLen()), addr(balancer, i == 1))
		}
		h.Serve(backendPort, tellPeer)
	}
	r := &steerRoad{Star: &testnet.Star{Client: client, Balancer: balancer}}
	r.flows = newFlows(t, balancer, FlowsOptions{Capacity: 4})
	must(t, r.flows.AttachAll())
	r.open(t)
	for _, ipv6 := range []bool{false, true} {
		k := kind{flow.TCP, ipv6, true}
		for _, to := range []*testnet.Host{client, backend} {
			vip := r.program(t, k, program.ByTable, func(_ *program.Service, _ []program.Backend, p *program.Pool, _ *program.Frontend) {
				must(t, r.steer.SetBackend(program.Backend{
					ID: 1, Service: theService, Address: netip.AddrPortFrom(addr(to, ipv6), backendPort), Takes: true, Keep: program.Keep{Near: true, Far: true, Beside: true}, Masked: addr(balancer, ipv6),
				}))
				p.Table = []program.BackendID{1}
			})
			if me := whoAmI(t, r.dial(t, vip, netip.AddrPort{})); me.Addr() != addr(balancer, ipv6) {
				t.Errorf("%s sees %s", to.Name(), me)
			}
			r.deleteAll(t)
		}
	}
}

// TestSteerShows: whose address a backend sees goes by where the client is, and whom it may see.
func TestSteerShows(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{})
	r.serve()
	for _, ipv6 := range []bool{false, true} {
		k := kind{flow.TCP, ipv6, true}
		far := netip.MustParseAddr("192.0.2.7")
		if ipv6 {
			far = netip.MustParseAddr("2001:db8::7")
		}
		bits := netip.PrefixFrom(far, far.BitLen())
		r.Client.AddAddr(r.ClientLink.B.Dev, bits)
		r.Balancer.AddRoute(bits, k.of(r.ClientLink.B))
		r.Backends[0].AddRoute(bits, k.of(r.BackendLinks[0].A))
		near := k.of(r.ClientLink.B)
		for _, tt := range []struct {
			keep      program.Keep
			near, far bool
		}{
			{program.Keep{}, false, false},
			{program.Keep{Near: true}, true, true}, // the backend is next to us, behind another device: it has no other way
			{program.Keep{Near: true, Far: true, Beside: true}, true, true},
		} {
			vip := r.program(t, k, program.ByTable, func(_ *program.Service, b []program.Backend, _ *program.Pool, _ *program.Frontend) {
				b[0].Keep = tt.keep
			})
			for client, want := range map[netip.Addr]bool{near: tt.near, far: tt.far} {
				me := whoAmI(t, r.dial(t, vip, netip.AddrPortFrom(client, 0)))
				if kept := me.Addr() == client; kept != want {
					t.Errorf("%+v: %s is seen as %s", tt.keep, client, me)
				}
			}
			r.deleteAll(t)
		}
	}
}
