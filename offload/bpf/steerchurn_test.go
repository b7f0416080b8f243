package bpf

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb/steer/program"
)

// TestSteerChurn: clients use few ports again and again while flows that are over are deleted. None that is in use is hit,
// and in the end nothing is left and counted.
func TestSteerChurn(t *testing.T) {
	const clients, ports = 6, 4
	rounds := testnet.Scaled(150)
	r := newSteerRoad(t, 2, FlowsOptions{Steer: SteerOptions{FirstPort: 60000, LastPort: 60063}})
	r.serve()
	eachSteered(t, onlyTCP, func(t *testing.T, k kind) {
		vip := r.program(t, k, program.ByTable, nil)
		stop := make(chan struct{})
		var sweeping, working sync.WaitGroup
		sweeping.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var over []program.Flow
				err := r.steer.Walk(soon(), func(f program.Flow) bool {
					if f.State == program.Closed {
						over = append(over, f)
					}
					return true
				})
				if err == nil {
					_, err = r.steer.Delete(over, false)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
		for i := range clients {
			working.Go(func() {
				for n := range rounds {
					from := netip.AddrPortFrom(k.of(r.ClientLink.B), uint16(46000+i*ports+n%ports))
					c, err := r.try(vip, from)
					if err != nil {
						t.Errorf("client %d, connection %d: %v", i, n, err)
						return
					}
					if _, err := peerOf(c); err != nil {
						t.Errorf("client %d, connection %d: %v", i, n, err)
					}
					testnet.Reset(c)
				}
			})
		}
		working.Wait()
		close(stop)
		sweeping.Wait()
		r.deleteAll(t)
		if n := elements(t, r.flows); n != 0 {
			t.Errorf("%d elements are left", n)
		}
	})
}

// TestSteerMutated: whatever comes, flows and counts stay whole.
func TestSteerMutated(t *testing.T) {
	rounds := testnet.Scaled(3000)
	r := newSteerRoad(t, 1, FlowsOptions{})
	for _, ipv6 := range []bool{false, true} {
		k := kind{flow.TCP, ipv6, true}
		r.program(t, k, program.ByTable, nil)
		udp := k
		udp.proto = flow.UDP
		must(t, r.steer.SetFrontend(program.Frontend{FrontendKey: udp.vip(frontendPort), Service: theService, Outside: thePool, Keep: true}))
		f := r.flood(t, k)
		client := netip.AddrPortFrom(k.of(r.ClientLink.B), 1234)
		backend := netip.AddrPortFrom(k.of(r.BackendLinks[0].B), backendPort)
		vip := k.vip(frontendPort).Address
		var seeds [][]byte
		for _, g := range []segment{
			{flags: "SN", seq: 1, options: ofSYN}, {seq: 2, ack: 1, options: usual, payload: 30}, {flags: "F", seq: 32, ack: 1}, {flags: "R", seq: 33, ack: 1},
			{seq: 1, ack: 2, payload: 1500},
		} {
			seeds = append(seeds, g.frame(t, flow.TCP, client, vip), g.frame(t, flow.TCP, backend, client))
		}
		for _, g := range []segment{{payload: 30}, {payload: 1500}} {
			seeds = append(seeds, g.frame(t, flow.UDP, client, vip), g.frame(t, flow.UDP, backend, client))
		}
		kind, code := uint8(3), uint8(4)
		if ipv6 {
			kind, code = 2, 0
		}
		seeds = append(seeds, errorAbout(t, router[ipv6], kind, code, 1300, segment{seq: 9}.frame(t, flow.TCP, client, backend)[etherLen:]))
		rnd := rand.New(rand.NewPCG(1, 2))
		for range rounds {
			f.send(t, mutate(rnd, seeds[rnd.IntN(len(seeds))]))
		}
		for _, frame := range seeds {
			f.send(t, frame)
		}
		if len(r.all(t)) == 0 {
			t.Error("no flow has begun")
		}
		must(t, r.steer.DeleteFrontend(udp.vip(frontendPort)))
		r.deleteAll(t)
	}
	if n := elements(t, r.flows); n != 0 {
		t.Errorf("%d elements are left", n)
	}
}

// TestSteerErrorsAreTranslated: what a router says about a packet that was sent on reaches its sender, about what it had sent.
func TestSteerErrorsAreTranslated(t *testing.T) {
	r := newSteerRoad(t, 1, FlowsOptions{})
	eachSteered(t, tcpAndUDP, func(t *testing.T, k kind) {
		r.program(t, k, program.ByTable, nil)
		f := r.flood(t, k)
		client := netip.AddrPortFrom(k.of(r.ClientLink.B), 1234)
		sent := segment{flags: "SN", seq: 77, payload: 9}.frame(t, k.proto, client, k.vip(frontendPort).Address)
		if v := f.send(t, sent); v != redirected {
			t.Fatalf("verdict %d", int32(v))
		}
		w := r.only(t)
		on := segment{flags: "SN", seq: 77, payload: 9, hops: 63}.frame(t, k.proto, w.Local, w.Address)
		kind, code := uint8(3), uint8(4)
		if k.ipv6 {
			kind, code = 2, 0
		}
		in := errorAbout(t, router[k.ipv6], kind, code, 1300, on[etherLen:])
		verdict, out := f.run(t, in)
		if verdict != redirected {
			t.Fatalf("verdict %d", int32(verdict))
		}
		b := out[etherLen:]
		to, quoted := b[16:20], b[20+8:]
		if k.ipv6 {
			to, quoted = b[24:40], b[40+8:]
		}
		if !slices.Equal(to, client.Addr().AsSlice()) {
			t.Errorf("it goes to %v", to)
		}
		at := transportOf(quoted)
		got := fmt.Sprint(binary.BigEndian.Uint16(quoted[at:]), binary.BigEndian.Uint16(quoted[at+2:]))
		if want := fmt.Sprint(1234, frontendPort); got != want {
			t.Errorf("it quotes ports %s, want %s", got, want)
		}
		quotes := slices.Concat(sent[etherLen:])
		from, till := 12, 20
		if k.ipv6 {
			from, till = 8, 40
		}
		if !slices.Equal(quoted[from:till], quotes[from:till]) {
			t.Errorf("it quotes addresses %v, want %v", quoted[from:till], quotes[from:till])
		}
	})
}
