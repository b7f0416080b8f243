package topology

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/baton-lb/baton/internal/testnet"
)

func TestStar(t *testing.T) {
	testnet.RequireRoot(t)
	for _, v6 := range []bool{false, true} {
		star := Star{IPv6: v6, Backends: 3}
		t.Run(star.Name(), func(t *testing.T) {
			h, err := star.Build(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := h.Close(); err != nil {
					t.Error(err)
				}
			})
			if h.VIP.Is6() != v6 || len(h.BackendAt) != 3 || len(h.MaskedAt) != 3 {
				t.Errorf("VIP %v, backends %v, masked %v", h.VIP, h.BackendAt, h.MaskedAt)
			}
			seen := make(chan netip.Addr, 1)
			if err := h.Try(func() { meet(t, h, seen) }); err != nil {
				t.Fatal(err)
			}
			if got := <-seen; got != h.ClientAt {
				t.Errorf("the backend saw %v, want the client, %v", got, h.ClientAt)
			}
		})
	}
}

// meet connects the client to the second backend, which says whom it saw.
func meet(t *testing.T, h *Hosts, seen chan<- netip.Addr) {
	ln, err := h.Backends[1].Listen("tcp", h.BackendAddr(4, Echo))
	if err != nil {
		t.Error(err)
		return
	}
	defer ln.Close()
	c, err := h.Client.Dial("tcp", h.BackendAddr(1, Echo))
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	peer, err := ln.Accept()
	if err != nil {
		t.Error(err)
		return
	}
	defer peer.Close()
	seen <- netip.MustParseAddrPort(peer.RemoteAddr().String()).Addr()
}

func TestTry(t *testing.T) {
	h, err := newHosts(t.Context(), func(h *Hosts) {})
	if err != nil {
		t.Fatal(err)
	}
	var undone []int
	h.Cleanup(func() { undone = append(undone, 1) })
	h.Cleanup(func() { undone = append(undone, 2) })
	err = h.Try(func() {
		h.Fatalf("no %s", "luck")
		t.Error("it went on after a failure")
	})
	if err == nil || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("Try returned %v", err)
	}
	if err := h.Try(func() {}); err != nil {
		t.Errorf("the next Try returned %v", err)
	}
	if err := h.Close(); err != nil || !slices.Equal(undone, []int{2, 1}) {
		t.Errorf("Close returned %v and undid %v", err, undone)
	}
}
