package offload

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/offload/bpf"
)

func fullNote() note {
	at := time.Unix(1_700_000_000, 5)
	return note{
		ID: 77, Service: "web", Picked: flow.ByAffinity, StartedAt: at, HandedOffAt: at.Add(time.Second),
		Idle: time.Hour, HalfClosed: time.Minute,
		Base: flow.Counters{
			BytesToBackend: 1, BytesToClient: 1 << 60, PacketsToBackend: 3, PacketsToClient: 4, LastSeen: at.Add(2 * time.Second),
		},
		Asked: netip.MustParseAddrPort("[fd96::10]:80"), Client: netip.MustParseAddrPort("[fd00::1]:4000"),
		ToClientNext: 5, ToBackendNext: 6, ToClientDelta: 7, ToBackendDelta: 1<<32 - 8,
	}
}

func TestNote(t *testing.T) {
	bare := note{ID: 1}
	long := fullNote()
	long.Service = strings.Repeat("n", 60)
	short := fullNote()
	short.Asked, short.Client = netip.MustParseAddrPort("10.96.0.10:80"), netip.AddrPort{}
	for _, n := range []note{bare, fullNote(), long, short} {
		b := n.marshal()
		if len(b) > bpf.NoteSize {
			t.Errorf("%d bytes", len(b))
		}
		kept := make([]byte, bpf.NoteSize) // as the kernel keeps it
		copy(kept, b)
		got, err := unmarshalNote(kept)
		if err != nil || got != n {
			t.Errorf("%+v, %v\nwant %+v", got, err, n)
		}
	}
}

// A service's name that does not fit is cut.
func TestLongNote(t *testing.T) {
	n := fullNote()
	n.Service = strings.Repeat("n", 300)
	got, err := unmarshalNote(n.marshal())
	if err != nil || len(got.Service) < 60 || !strings.HasPrefix(n.Service, got.Service) {
		t.Errorf("%q, %v", got.Service, err)
	}
}

func TestBadNotes(t *testing.T) {
	n := fullNote()
	b := n.marshal()
	other := append([]byte{noteVersion + 1}, b[1:]...)
	nobody := note{}
	for name, b := range map[string][]byte{
		"none": nil, "zeros": make([]byte, bpf.NoteSize), "another version": other, "cut": b[:len(b)-1], "no id": nobody.marshal(),
	} {
		if n, err := unmarshalNote(b); !errors.Is(err, errNote) {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
	}
}

func FuzzNote(f *testing.F) {
	n := fullNote()
	f.Add(n.marshal())
	f.Add([]byte{noteVersion})
	f.Add(make([]byte, bpf.NoteSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := unmarshalNote(b)
		if err != nil {
			return
		}
		if len(n.Service) > 60 {
			return // may not fit beside long addresses
		}
		again, err := unmarshalNote(n.marshal())
		if err != nil || again != n {
			t.Errorf("%+v, %v\nwant %+v", again, err, n)
		}
	})
}
