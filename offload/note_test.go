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
		SeenAs: flow.ClientMasked, NotTransparent: flow.NotTransparentOtherWay,
	}
}

func TestNote(t *testing.T) {
	bare := note{ID: 1}
	long := fullNote()
	long.Service = strings.Repeat("n", 60)
	short := fullNote()
	short.Asked, short.Client = netip.MustParseAddrPort("10.96.0.10:80"), netip.AddrPort{}
	kubernetes := fullNote()
	kubernetes.Service = strings.Repeat("n", 63) + "/" + strings.Repeat("s", 63) + ":" + strings.Repeat("p", 15)
	kubernetes.Asked, kubernetes.Client = netip.AddrPort{}, netip.AddrPort{}
	for _, n := range []note{bare, fullNote(), long, short, kubernetes} {
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

// Every word that a record may say has a code.
func TestNoteHasAllWords(t *testing.T) {
	for _, w := range flow.ClientAddresses {
		n := note{ID: 1, SeenAs: w}
		if got, err := unmarshalNote(n.marshal()); got.SeenAs != w || err != nil {
			t.Errorf("%s is read as %q, %v", w, got.SeenAs, err)
		}
	}
	for _, w := range flow.NotTransparentReasons {
		n := note{ID: 1, NotTransparent: w}
		if got, err := unmarshalNote(n.marshal()); got.NotTransparent != w || err != nil {
			t.Errorf("%s is read as %q, %v", w, got.NotTransparent, err)
		}
	}
}

// Whose a flow's source address is, is told by the client that the service believes in,
// not by a proxy before us.
func TestNoteOfShownClients(t *testing.T) {
	client, proxy, ours := netip.MustParseAddrPort("10.1.0.1:4000"), netip.MustParseAddrPort("10.2.0.1:5000"), netip.MustParseAddrPort("10.3.0.1:6000")
	for _, tt := range []struct {
		name            string
		packets, source netip.AddrPort
		note            note
		lent            bool
		seen            flow.ClientAddress
	}{
		{"masked", client, ours, note{}, true, ""},
		{"masked, though asked for", client, ours, note{SeenAs: flow.ClientMasked}, true, flow.ClientMasked},
		{"shown", client, client, note{SeenAs: flow.ClientTransparent}, false, flow.ClientTransparent},
		{"shown, and not written down yet", client, client, note{}, false, flow.ClientTransparent},
		{"with another port", client, netip.AddrPortFrom(client.Addr(), 1), note{}, false, flow.ClientPortChanged},
		{"behind a proxy", proxy, client, note{Client: client}, false, flow.ClientTransparent},
		{"behind a proxy, masked", proxy, ours, note{Client: client}, true, ""},
	} {
		s := bpf.FlowSpec{Client: tt.packets, Local: tt.source}
		if lent, seen := tt.note.lent(&s), tt.note.seenAs(&s); lent != tt.lent || seen != tt.seen {
			t.Errorf("%s: lent %v, seen as %q", tt.name, lent, seen)
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
