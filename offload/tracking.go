package offload

import (
	"errors"
	"log/slog"
	"net/netip"

	"github.com/baton-lb/baton/conntrack"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/offload/bpf"
)

// tracking forgets the entries that the kernel's connection tracking, where it is in
// use, has of a flow's two connections: it would see neither another packet nor the
// end of them, and keep them for five days.
type tracking struct {
	conn *conntrack.Conn // nil = there is none
	log  *slog.Logger
}

func openTracking(log *slog.Logger) *tracking {
	c, err := conntrack.Open()
	if err != nil && !errors.Is(err, conntrack.ErrNotSupported) {
		log.Warn("connection tracking: entries of offloaded flows stay until they expire", "err", err)
	}
	return &tracking{conn: c, log: log}
}

// forget deletes both entries.
func (t *tracking) forget(s bpf.FlowSpec) {
	if t.conn == nil || !t.conn.InUse() {
		return
	}
	for _, ends := range [][2]netip.AddrPort{{s.Client, s.Frontend}, {s.Local, s.Backend}} {
		err := t.conn.Delete(conntrack.Tuple{Proto: flow.TCP, Source: ends[0], Destination: ends[1]})
		if err != nil {
			t.log.Debug("forget tracked connection", "err", err)
		}
	}
}

func (t *tracking) close() error {
	if t == nil || t.conn == nil {
		return nil
	}
	return t.conn.Close()
}
