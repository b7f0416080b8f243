package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// What a service says of offload when its flows are to move in the middle of
// something: by themselves, soon; or only when they are told to.
const (
	whenBusy = "offload: {mode: auto, afterBytes: 1MiB, afterAge: 0s}"
	whenTold = "offload: {mode: auto, afterBytes: 1TiB, afterAge: 24h}"
)

// emulated is set where a program plays the CPU.
var emulated = os.Getenv("BATON_VM") != ""

// scaled is a size, or a number, for a machine that does nothing else; less where
// the race detector or an emulated CPU makes everything slower.
func scaled[N int | int64](n N) N {
	if raceDetector || emulated {
		return n / 10
	}
	return n
}

// fewer is a number for a machine that does nothing else; a fifth of it where the
// race detector or an emulated CPU makes everything slower.
func fewer(n int) int {
	if raceDetector || emulated {
		return n / 5
	}
	return n
}

// command runs the command beside an instance, and returns what it prints.
func (b *baton) command(h *testnet.Host, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := h.Command(ctx, batonPath, append(args, "--socket", b.socket())...).CombinedOutput()
	return string(out), err
}

// flowOf waits for the flow of a client.
func (b *baton) flowOf(client net.Addr) (v flow.View) {
	b.t.Helper()
	eventually(b.t, "the flow of "+client.String()+" is there", func() error {
		for _, v = range b.flows() {
			if v.Client.String() == client.String() {
				return nil
			}
		}
		return errors.New("it is not")
	})
	return v
}

// handOff has the command hand a flow over. A flow that finds no quiet moment may
// need to be told again.
func (w world) handOff(b *baton, client net.Addr) {
	b.t.Helper()
	id := b.flowOf(client).ID.String()
	testnet.Eventually(b.t, 30*time.Second, "baton handoff "+id, func() error {
		out, err := b.command(w.Balancer, "handoff", id)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// inKernelNow checks that a flow is carried by the kernel.
func (b *baton) inKernelNow(clients ...net.Addr) []flow.View {
	b.t.Helper()
	var addrs []netip.AddrPort
	for _, c := range clients {
		addrs = append(addrs, netip.MustParseAddrPort(c.String()))
	}
	return b.carriedBy(flow.PathBPF, addrs...)
}

// stays waits until the flow of a client says that it stays in userspace, and why.
func (b *baton) stays(client net.Addr, why flow.NotOffloaded) {
	b.t.Helper()
	eventually(b.t, "the flow stays in userspace: "+string(why), func() error {
		for _, v := range b.flows() {
			if v.Client.String() == client.String() && v.NotOffloaded == why && v.Path == flow.PathUserspace {
				return nil
			}
		}
		return fmt.Errorf("flows: %+v", b.flows())
	})
}

// noSockets waits until the balancer has no socket for any flow: neither side of
// those that the kernel carries is known to its TCP.
func (w world) noSockets(t *testing.T) {
	t.Helper()
	eventually(t, "the balancer has no TCP sockets", func() error {
		if left := w.Balancer.TCPSockets(); len(left) > 0 {
			return fmt.Errorf("%d, the first is %+v", len(left), left[0])
		}
		return nil
	})
}

// retransmitted is how many segments the kernel of a connection's end had to send
// again.
func retransmitted(t *testing.T, c net.Conn) (n uint32) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err2 := raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Total_retrans
		}
	})
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return n
}

// until is a stream that goes on until the channel is closed, and then for rest
// bytes more.
type until struct {
	stream io.Reader
	closed <-chan struct{}
	rest   int64
}

func (u *until) Read(p []byte) (int, error) {
	select {
	case <-u.closed:
		if u.rest == 0 {
			return 0, io.EOF
		}
		p = p[:min(int64(len(p)), u.rest)]
		u.rest -= int64(len(p))
	default:
	}
	return u.stream.Read(p)
}

// endless is a stream without end.
func endless(seed uint64) io.Reader { return testnet.Stream(seed, 1<<62) }
