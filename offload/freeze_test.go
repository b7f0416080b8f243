package offload

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/offload/bpf"
)

// seenFlow is a flow of which somebody has said what was seen.
type seenFlow struct {
	Flow
	state bpf.FlowState
}

func (f *seenFlow) State() bpf.FlowState { return f.state }

// A FIN that passed the gate may reach its socket when that has said that it is
// established and empty. There is nothing to read then and the numbers are right, but
// it was acknowledged, and the other side has not heard of it.
func TestFINBehindTheGate(t *testing.T) {
	client, front := connected(t)
	_, back := connected(t)
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	testnet.Eventually(t, 10*time.Second, "the FIN is there", func() error {
		var i tcpInfo
		if err := front.info(&i); err != nil || i.State == unix.BPF_TCP_CLOSE_WAIT {
			return err
		}
		return errors.New("it is not")
	})
	if err := errors.Join(front.beginRepair(), back.beginRepair()); err != nil {
		t.Skip(err)
	}
	at, err := front.sequence()
	if err != nil {
		t.Fatal(err)
	}
	f := &seenFlow{}
	d := &f.state.Directions[toBackend]
	d.HasEnd, d.End = true, at.receive
	a := &attempt{flow: f, client: front, backend: back}
	if ok, err := a.stand(&standing{}); !ok || err != nil {
		t.Errorf("if it were data that was read: %v, %v", ok, err)
	}
	d.FIN = true
	if ok, err := a.stand(&standing{}); ok || err != nil {
		t.Errorf("%v, %v; the flow would be forwarded", ok, err)
	}
}

// connected is a connection, and the socket of the side that has accepted it.
func connected(t *testing.T) (*net.TCPConn, socket) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	raw, err := s.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	fd := socket(-1)
	_ = raw.Control(func(f uintptr) { fd = socket(f) })
	return c.(*net.TCPConn), fd
}
