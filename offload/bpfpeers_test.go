package offload_test

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// echoBulk sends bytes there and back, both ways at once, and checks the sums.
func echoBulk(t testing.TB, c *net.TCPConn, n int64) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	sent := make(chan error, 1)
	go func() {
		_, err := testnet.SendBulk(c, 5, n)
		_ = c.CloseWrite()
		sent <- err
	}()
	got, err := testnet.ReceiveBulk(c)
	if sendErr := <-sent; err != nil || sendErr != nil {
		t.Errorf("sent: %v; received %v, %v", sendErr, got, err)
	} else if want := testnet.StreamSum(5, n); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Peers that speak TCP otherwise than the balancer does are carried, or stay where
// they are with the reason.
func TestLiveHandoffBetweenPeers(t *testing.T) {
	w := bpfWorld(t)
	w.star.Backends[0].Serve(backendPort, testnet.Echo)
	for _, tt := range []struct {
		name            string
		client, backend testnet.TCPSpec
		clientMTU       int
		backendMTU      int
		want            flow.NotOffloaded
	}{
		{name: "client without timestamps", client: testnet.TCPSpec{NoTimestamps: true}},
		{name: "client without SACK", client: testnet.TCPSpec{NoSACK: true}},
		{name: "client with neither", client: testnet.TCPSpec{NoTimestamps: true, NoSACK: true}},
		{name: "client without window scaling", client: testnet.TCPSpec{NoWindowScaling: true}},
		{name: "backend without window scaling", backend: testnet.TCPSpec{NoWindowScaling: true}},
		{name: "backend without timestamps", backend: testnet.TCPSpec{NoTimestamps: true}, want: flow.NotOffloadedTimestamps},
		{name: "backend without SACK", backend: testnet.TCPSpec{NoSACK: true}, want: flow.NotOffloadedSACK},
		{name: "client with ECN", client: testnet.TCPSpec{ECN: true}, want: flow.NotOffloadedECN},
		{name: "backend's MTU is smaller", backendMTU: 1400, want: flow.NotOffloadedMSS},
		{name: "client's MTU is smaller", clientMTU: 1400, want: flow.NotOffloadedMSS},
		{name: "large windows", client: testnet.TCPSpec{ReceiveMax: 64 << 20}, backend: testnet.TCPSpec{ReceiveMax: 1 << 20}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.star.Client.TCP(tt.client)
			w.star.Backends[0].TCP(tt.backend)
			setMTU(t, w.star.ClientLink, cmp.Or(tt.clientMTU, 1500))
			setMTU(t, w.star.BackendLinks[0], cmp.Or(tt.backendMTU, 1500))
			for _, vip := range vips {
				c := w.connect(vip)
				rec := w.record(c)
				if tt.want == "" {
					w.onPath(c, flow.PathBPF)
				} else {
					w.stays(c, tt.want)
				}
				echoBulk(t, c, 1<<20)
				v := w.ended(rec.ID(), flow.ByClient, flow.ReasonClosed)
				if v.BytesToBackend != 1<<20 || v.BytesToClient != 1<<20 {
					t.Errorf("%+v", v)
				}
			}
		})
	}
}

// setMTU changes both ends of a link.
func setMTU(t testing.TB, l testnet.Link, mtu int) {
	t.Helper()
	for _, p := range []testnet.Port{l.A, l.B} {
		link, err := p.Host.Netlink().LinkByName(p.Dev)
		if err == nil {
			err = p.Host.Netlink().LinkSetMTU(link, mtu)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Window scales of every kind are translated.
func TestLiveHandoffOfWindowScales(t *testing.T) {
	w := bpfWorld(t)
	w.star.Client.TCP(testnet.TCPSpec{ReceiveMax: 64 << 20})
	w.star.Backends[0].Serve(backendPort, testnet.Echo)
	for _, scale := range []int{0, 3, 10} {
		d := &net.Dialer{Control: testnet.WindowScale(scale)}
		for _, vip := range vips {
			conn, err := w.star.Client.DialWith(context.Background(), d, "tcp", netip.AddrPortFrom(vip, vipPort))
			if err != nil {
				t.Fatal(err)
			}
			c := conn.(*net.TCPConn)
			w.onPath(c, flow.PathBPF)
			echoBulk(t, c, 2<<20)
			_ = c.Close()
		}
	}
}

// Loss on both sides of the balancer costs time, and nothing else, in userspace, in
// the kernel, and between them.
func TestLiveHandoffUnderLoss(t *testing.T) {
	w := bpfWorld(t)
	w.offload(lb.Offload{Mode: lb.OffloadAuto, AfterAge: 10 * time.Millisecond, AfterBytes: 64 << 10})
	w.star.ClientLink.B.Lose(5)
	w.star.BackendLinks[0].B.Lose(5)
	for _, spec := range []testnet.TCPSpec{{}, {NoTimestamps: true}, {NoSACK: true}} {
		w.star.Client.TCP(spec)
		for _, vip := range vips {
			w.bulk(t, vip, true, 1<<20)
			w.bulk(t, vip, false, 1<<20)
		}
	}
	t.Logf("%v, stood still %v", w.resultsSoFar(), w.stood)
}
