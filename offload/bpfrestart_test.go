package offload_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb/handoff"
	"github.com/baton-lb/baton/offload"
	"github.com/baton-lb/baton/offload/bpf"
)

// pinned is a directory on a bpffs of the test's own.
func pinned(t testing.TB) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "bpf")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("bpffs", at, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return at
}

// Flows go on while nobody looks after them, and the next process has them again, with
// what they had carried, and can end them.
func TestFlowsOutliveTheProcess(t *testing.T) {
	dir := pinned(t)
	w := newWorld(t, func(s *testnet.Star) offload.Kernel { return openBPF(t, s, dir) })
	t.Cleanup(func() {
		w.star.Balancer.Do(func() {
			if _, err := bpf.RemoveFlows(dir); err != nil {
				t.Error(err)
			}
		})
	})
	w.star.Backends[0].Serve(backendPort, testnet.Echo)
	var conns []*net.TCPConn
	var before []flow.View
	for _, vip := range vips {
		c := w.connect(vip)
		rec := w.onPath(c, flow.PathBPF)
		talk(t, c, "before")
		conns, before = append(conns, c), append(before, rec.View())
	}
	w.stop()
	for _, c := range conns {
		talk(t, c, "alone")
	}
	w.open(openBPF(t, w.star, dir), func(o *offload.Options) {
		o.Adopt = func(a offload.Adopted) (bool, flow.Reason) {
			return a.Frontend.Addr() == vips[0], flow.ReasonServiceRemoved
		}
	})
	if n := w.o.Flows(); n != len(conns) {
		t.Errorf("%d flows", n)
	}
	for i, c := range conns {
		talk(t, c, "after")
		v := w.record(c).View()
		b := before[i]
		if v.ID != b.ID || v.Service != "web" || v.Backend != b.Backend || v.State != flow.Offloaded ||
			!v.StartedAt.Equal(b.StartedAt) || v.HandedOffAt.Sub(b.HandedOffAt).Abs() > 1e9 || v.Picked != b.Picked ||
			v.BytesToBackend != 19 || v.BytesToClient != 19 {
			t.Errorf("%+v\nbefore: %+v", v, b)
		}
	}
	if n := w.o.Adopt(); n != 1 {
		t.Errorf("%d ended", n)
	}
	w.ended(before[1].ID, flow.ByBaton, flow.ReasonServiceRemoved)
	if _, err := conns[1].Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("the client of a service that is gone felt %v", err)
	}
	talk(t, conns[0], "still")
	_ = conns[0].CloseWrite()
	if _, err := conns[0].Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("felt %v", err)
	}
	w.ended(before[0].ID, flow.ByClient, flow.ReasonClosed)
}

// Datagrams take the way beside the sockets, and the sockets again when that is
// withdrawn; what an earlier process has opened is found.
func TestCarryDatagrams(t *testing.T) {
	dir := pinned(t)
	w := newWorld(t, func(s *testnet.Star) offload.Kernel { return openBPF(t, s, dir) })
	t.Cleanup(func() {
		w.star.Balancer.Do(func() { _, _ = bpf.RemoveFlows(dir) })
	})
	for _, vip := range vips {
		frontend := addrPort(vip, 53)
		backend := w.backend(vip)
		at, err := w.star.Backends[0].ListenPacket("udp", backend)
		if err != nil {
			t.Fatal(err)
		}
		defer at.Close()
		client, err := w.star.Client.Dial("udp", frontend)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		local := w.star.BackendLinks[0].A.IP4
		if vip.Is6() {
			local = w.star.BackendLinks[0].A.IP6
		}
		rec := w.registry.Open(flow.Spec{Proto: flow.UDP, Service: "dns", Frontend: frontend, Client: udpAddr(client.LocalAddr())})
		s := handoff.Session{
			Record: rec, Client: udpAddr(client.LocalAddr()), Frontend: frontend, Source: addrPort(local, 50000), Backend: backend,
			Policy: w.service.Offload, Timeouts: w.service.Timeouts,
		}
		carrier, why := w.o.Carry(s)
		if carrier == nil {
			t.Fatal(why)
		}
		if again, why := w.o.Carry(s); again != nil || why != flow.NotOffloadedTaken {
			t.Errorf("twice: %v, %q", again, why)
		}
		if err := askDatagram(client, at, "hello"); err != nil {
			t.Error(err)
		}
		if c := carrier.Counters(); c.BytesToBackend != 5 || c.BytesToClient != 5 || c.PacketsToBackend != 1 || c.LastSeen.IsZero() {
			t.Errorf("%+v", c)
		}
		rec.Finish(flow.ByBaton, flow.ReasonIdle)
	}
	w.stop()
	w.open(openBPF(t, w.star, dir))
	kept := w.o.Kept()
	if len(kept) != len(vips) || w.o.Flows() != len(vips) || w.o.Kept() != nil {
		t.Fatalf("%d kept, %d flows", len(kept), w.o.Flows())
	}
	for _, k := range kept {
		if k.Service != "dns" || k.Source.Port() != 50000 || k.ID == 0 || k.Backend != w.backend(k.Frontend.Addr()) || k.Carrier.Name() != flow.PathBPF {
			t.Errorf("%+v", k)
		}
		if c := k.Carrier.Withdraw(); c.BytesToBackend != 5 || c != k.Carrier.Withdraw() || c != k.Carrier.Counters() {
			t.Errorf("%+v", c)
		}
	}
	if w.o.Flows() != 0 {
		t.Errorf("%d flows", w.o.Flows())
	}
}

// askDatagram sends a datagram to a backend and has it come back.
func askDatagram(client net.Conn, backend net.PacketConn, what string) error {
	if _, err := io.WriteString(client, what); err != nil {
		return err
	}
	b := make([]byte, 100)
	_ = backend.SetReadDeadline(deadline())
	n, from, err := backend.ReadFrom(b)
	if err != nil {
		return fmt.Errorf("at the backend: %w", err)
	}
	if _, err := backend.WriteTo(b[:n], from); err != nil {
		return err
	}
	_ = client.SetReadDeadline(deadline())
	if n, err = client.Read(b); err != nil || string(b[:n]) != what {
		return fmt.Errorf("at the client: %q, %w", b[:n], err)
	}
	return nil
}
