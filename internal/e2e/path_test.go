package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// What a service says of offload, where a test does not leave it to chance.
const (
	inUserspace = "offload: {mode: never}"
	inKernel    = "offload: {mode: always}"
)

// inKernel reports whether the flows of the test are to leave userspace before
// their first byte.
func (w world) inKernel() bool { return w.offload == inKernel }

// isSteered reports whether they are to begin there.
func (w world) isSteered() bool { return w.offload == steered }

// path is what is to carry the flows of the test.
func (w world) path() flow.PathName {
	if w.inKernel() || w.isSteered() {
		return flow.PathBPF
	}
	return flow.PathUserspace
}

// wantPath checks what carried a flow last.
func (w world) wantPath(t *testing.T, v flow.View) {
	t.Helper()
	if v.Path != w.path() {
		t.Errorf("the flow is carried by %s (%s), want %s: %+v", v.Path, v.NotOffloaded, w.path(), v)
	}
}

// carried waits until the flows of some connections are there and are carried by
// what they are to be carried by.
func (w world) carried(b *baton, conns ...*net.TCPConn) []flow.View {
	b.t.Helper()
	var clients []netip.AddrPort
	for _, c := range conns {
		clients = append(clients, netip.MustParseAddrPort(c.LocalAddr().String()))
	}
	return b.carriedBy(w.path(), clients...)
}

// carriedUDP is carried for UDP sockets.
func (w world) carriedUDP(b *baton, conns ...net.Conn) []flow.View {
	b.t.Helper()
	var clients []netip.AddrPort
	for _, c := range conns {
		clients = append(clients, netip.MustParseAddrPort(c.LocalAddr().String()))
	}
	return b.carriedBy(w.path(), clients...)
}

// carriedTime has all attempts at a handoff in it that a busy flow is given: the last
// comes after more than half a minute.
const carriedTime = 60 * time.Second

// carriedBy waits until the flows of some clients are established on a path, and
// returns them in their order.
func (b *baton) carriedBy(path flow.PathName, clients ...netip.AddrPort) []flow.View {
	b.t.Helper()
	state := flow.Established
	if path != flow.PathUserspace {
		state = flow.Offloaded
	}
	found := make([]flow.View, len(clients))
	testnet.Eventually(b.t, carriedTime, fmt.Sprintf("%d flows are carried by %s", len(clients), path), func() error {
		live := make(map[netip.AddrPort]flow.View)
		for _, v := range b.flows() {
			live[v.Client] = v
		}
		for i, c := range clients {
			v, ok := live[c]
			if !ok {
				return fmt.Errorf("the flow of %s is not there", c)
			}
			if v.Path != path || v.State != state {
				return fmt.Errorf("the flow of %s is carried by %s, %s (%s)", c, v.Path, v.State, v.NotOffloaded)
			}
			found[i] = v
		}
		return nil
	})
	return found
}
