package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/steer/program"
)

// answer has f answer for first packets, and the process be there, until the test is over.
func (r *steerRoad) answer(t testing.TB, f func(program.Ask) program.BackendID) {
	t.Helper()
	var wg sync.WaitGroup
	done, failed := make(chan struct{}), make(chan error, 1)
	wg.Go(func() { r.Balancer.Do(func() { failed <- r.steer.Asks(f) }) })
	wg.Go(func() {
		for {
			r.steer.Beat()
			select {
			case <-done:
				return
			case <-time.After(program.BeatAge / 10):
			}
		}
	})
	t.Cleanup(func() {
		close(done)
		must(t, r.flows.Close())
		must(t, <-failed)
		wg.Wait()
	})
	testnet.Eventually(t, patience, "somebody asks", func() error {
		if atomic.LoadUint32(&r.steer.settings.Desk) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
}

// byPacket is a pool that asks, whose table has only backend 2.
func byPacket(_ *program.Service, _ []program.Backend, p *program.Pool, _ *program.Frontend) {
	p.Table = []program.BackendID{2}
}

// TestSteerAsks: a flow gets the backend that the process says, who is told whose it is; the table's if he does not know, and none if
// he says so.
func TestSteerAsks(t *testing.T) {
	r := newSteerRoad(t, 2, FlowsOptions{})
	r.serve()
	var says atomic.Uint32
	var heard sync.Map // netip.AddrPort → program.Ask
	r.answer(t, func(a program.Ask) program.BackendID {
		heard.Store(a.Client, a)
		return program.BackendID(says.Load())
	})
	eachSteered(t, tcpAndUDP, func(t *testing.T, k kind) {
		vip := r.program(t, k, program.ByPacket, byPacket)
		for _, tt := range []struct{ says, want program.BackendID }{{1, 1}, {2, 2}, {program.NoAnswer, 2}} {
			says.Store(uint32(tt.says))
			c := r.dial(t, vip, netip.AddrPort{})
			if me := whoAmI(t, c); (me == addrPortOf(c.LocalAddr())) != k.keep {
				t.Errorf("%s is seen as %s", c.LocalAddr(), me)
			}
			f := r.only(t)
			if f.Backend != tt.want {
				t.Errorf("asked for %d, got %d", tt.says, f.Backend)
			}
			client := addrPortOf(c.LocalAddr())
			if a, _ := heard.Load(client); a != (program.Ask{Proto: k.proto, Client: client, Frontend: vip.Address, Pool: thePool}) {
				t.Errorf("heard %+v", a)
			}
			_ = c.Close()
			r.deleteAll(t)
		}
		says.Store(uint32(program.NoFlow))
		if _, err := ask(r.Client, vip, errRefused); !errors.Is(err, errRefused) {
			t.Errorf("without one: %v", err)
		}
	})
	if c := r.steer.Counts(); c.Packets != 16 || c.Tables != 8 || c.Unasked != 0 {
		t.Errorf("%+v", c)
	}
}

// TestSteerAskedOnce: a SYN that is repeated while the process takes its time is one flow.
func TestSteerAskedOnce(t *testing.T) {
	r := newSteerRoad(t, 2, FlowsOptions{})
	r.serve()
	k := kind{flow.TCP, false, true}
	r.program(t, k, program.ByPacket, byPacket)
	asked, proceed := make(chan struct{}, 64), make(chan struct{})
	var turn atomic.Uint32
	r.answer(t, func(program.Ask) program.BackendID {
		asked <- struct{}{}
		<-proceed
		return program.BackendID(turn.Add(1)%2 + 1)
	})
	f := r.flood(t, k)
	wire := r.wire(t, r.ClientLink.B)
	for range 20 {
		wire(f.frame)
	}
	<-asked
	close(proceed)
	testnet.Eventually(t, patience, "all have been answered", func() error {
		if all := r.all(t); len(all) != 1 || all[0].Counters.PacketsToBackend != 20 {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
	if c := r.steer.Counts(); c.Packets != 1 {
		t.Errorf("%+v", c)
	}
}

// wire sends frames out of a port as they are.
func (r *steerRoad) wire(t testing.TB, p testnet.Port) func(frame []byte) {
	t.Helper()
	var (
		fd  int
		err error
	)
	l, lerr := r.Client.Netlink().LinkByName(p.Dev)
	must(t, lerr)
	r.Client.Do(func() { fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) })
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return func(frame []byte) {
		must(t, unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: l.Attrs().Index, Halen: 6}))
	}
}

// TestSteerAskedAbsent: while the process is away nobody waits for it.
func TestSteerAskedAbsent(t *testing.T) {
	r := newSteerRoad(t, 2, FlowsOptions{})
	r.serve()
	for _, proto := range tcpAndUDP {
		k := kind{proto, true, false}
		vip := r.program(t, k, program.ByPacket, byPacket)
		whoAmI(t, r.dial(t, vip, netip.AddrPort{}))
		if f := r.only(t); f.Backend != 2 {
			t.Errorf("%s: %+v", proto, f)
		}
		r.deleteAll(t)
	}
	if c := r.steer.Counts(); c.Unasked != 2 || c.Tables != 2 {
		t.Errorf("%+v", c)
	}
}

// TestSteerOrder: datagrams that follow a session's first one keep their order, however its backend is chosen; none is lost or comes
// twice.
func TestSteerOrder(t *testing.T) {
	const burst = 32
	sessions := testnet.Scaled(300)
	for _, how := range []program.Answer{program.ByTicket, program.ByTable, program.ByPacket} {
		t.Run(map[program.Answer]string{program.ByTicket: "ticket", program.ByTable: "table", program.ByPacket: "packet"}[how], func(t *testing.T) {
			r := newSteerRoad(t, 1, FlowsOptions{})
			k := kind{flow.UDP, false, false}
			vip := r.program(t, k, how, nil)
			r.answer(t, func(program.Ask) program.BackendID { return 1 })
			pc, err := r.Backends[0].ListenPacket("udp", netip.AddrPortFrom(r.BackendLinks[0].B.IP4, backendPort))
			must(t, err)
			defer pc.Close()
			disordered, missing := 0, 0
			for n := range sessions {
				if how == program.ByTicket {
					_, err := r.steer.Refill(thePool, []program.BackendID{1})
					must(t, err)
				}
				odd, lost := r.burst(t, vip, pc, uint32(n), burst)
				disordered, missing = disordered+odd, missing+lost
			}
			if missing > 0 {
				t.Errorf("%d datagrams are missing", missing)
			}
			most := 0
			if how == program.ByPacket { // a packet may be held up on its way out for longer than the program waits
				most = sessions / 50
			}
			if disordered > most {
				t.Errorf("of %d sessions %d were not in order", sessions, disordered)
			}
			t.Logf("of %d sessions %d were not in order", sessions, disordered)
		})
	}
}

// burst sends datagrams of one session at once, and says how many have come too late or not at all.
func (r *steerRoad) burst(t testing.TB, vip lb.FrontendKey, at net.PacketConn, session uint32, n int) (odd, lost int) {
	t.Helper()
	c := r.dial(t, vip, netip.AddrPort{})
	defer c.Close()
	b := make([]byte, 8)
	binary.BigEndian.PutUint32(b, session)
	for i := range n {
		binary.BigEndian.PutUint32(b[4:], uint32(i))
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	must(t, at.SetReadDeadline(time.Now().Add(patience)))
	var next uint32
	for got := 0; got < n; got++ {
		if _, _, err := at.ReadFrom(b); err != nil {
			return odd, n - got
		}
		if binary.BigEndian.Uint32(b) != session {
			t.Fatal("a datagram came twice, or late")
		}
		seq := binary.BigEndian.Uint32(b[4:])
		if seq < next {
			odd = 1
		}
		next = seq + 1
	}
	return odd, 0
}
