package capture

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// A port is free while nobody listens at it, at whichever address of the family;
// asking leaves nothing behind.
func TestFree(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("lone")
	h.AddAddr("lo", netip.MustParsePrefix("192.0.2.1/32"))
	free := func(at string) (err error) {
		h.Do(func() { err = Free(netip.MustParseAddrPort(at)) })
		return err
	}
	for _, at := range []string{"0.0.0.0:80", "[::]:80", "192.0.2.1:80", "0.0.0.0:80"} {
		if err := free(at); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	}
	ln, err := h.Listen("tcp", netip.MustParseAddrPort("192.0.2.1:80"))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"0.0.0.0:80", "192.0.2.1:80"} {
		if err := free(at); !errors.Is(err, ErrInUse) {
			t.Errorf("%s with a listener there: %v", at, err)
		}
	}
	if err := free("[::]:80"); err != nil {
		t.Errorf("the other family: %v", err)
	}
	_ = ln.Close()
	if err := free("192.0.2.9:80"); !errors.Is(err, ErrAbsent) {
		t.Errorf("an address that is not there: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("lone")
	notes := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go h.Do(func() {
		done <- WatchAddresses(ctx, func() {
			select {
			case notes <- struct{}{}:
			default:
			}
		})
	})
	has := func(want ...string) func() error {
		return func() (err error) {
			var got map[netip.Addr]struct{}
			h.Do(func() { got, err = Addresses() })
			for _, a := range want {
				if _, ok := got[addr(a)]; !ok {
					err = errors.Join(err, errors.New("no "+a))
				}
			}
			return err
		}
	}
	testnet.Eventually(t, 5*time.Second, "the loopback addresses are there", has("127.0.0.1", "::1"))
	for _, p := range []string{"192.0.2.1/32", "2001:db8::1/128"} {
		for len(notes) > 0 {
			<-notes
		}
		h.AddAddr("lo", netip.MustParsePrefix(p))
		<-notes
		testnet.Eventually(t, 5*time.Second, "the new address is there", has(netip.MustParsePrefix(p).Addr().String()))
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
