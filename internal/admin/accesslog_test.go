package admin

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

func endedView() *flow.View {
	at := time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)
	return &flow.View{
		ID: 0xabc, Protocol: flow.TCP, Service: "web", Frontend: netip.MustParseAddrPort("10.96.0.10:80"),
		Client: netip.MustParseAddrPort("10.201.1.2:40000"), Backend: netip.MustParseAddrPort("10.202.1.2:8080"),
		Path: flow.PathUserspace, State: flow.Ended, Picked: flow.ByAffinity, StartedAt: at, EndedAt: at.Add(1500 * time.Millisecond),
		EndedBy: flow.ByClient, Reason: flow.ReasonClosed, BytesToBackend: 7, BytesToClient: 9,
	}
}

func TestAccessLogLine(t *testing.T) {
	var out bytes.Buffer
	noTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	a := NewAccessLog(AccessLogOptions{Log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: noTime}))})
	a.OnEnded(endedView())
	unpicked := endedView()
	unpicked.Backend, unpicked.Path, unpicked.Reason, unpicked.EndedBy = netip.AddrPort{}, "", flow.ReasonNoBackend, flow.ByBaton
	a.OnEnded(unpicked)
	a.Close()
	a.Close()
	want := `level=INFO msg="flow ended" flow=0000000000000abc proto=tcp svc=web client=10.201.1.2:40000 frontend=10.96.0.10:80 backend=10.202.1.2:8080 picked=affinity path=userspace by=client reason=closed toBackend=7 toClient=9 dur=1.5s
level=INFO msg="flow ended" flow=0000000000000abc proto=tcp svc=web client=10.201.1.2:40000 frontend=10.96.0.10:80 by=baton reason=no-backend toBackend=7 toClient=9 dur=1.5s
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// stuckHandler blocks until it is let go.
type stuckHandler struct {
	slog.Handler
	entered, free chan struct{}
}

func (h *stuckHandler) Handle(ctx context.Context, r slog.Record) error {
	select {
	case h.entered <- struct{}{}:
	default:
	}
	<-h.free
	return h.Handler.Handle(ctx, r)
}

func TestAccessLogNeverBlocks(t *testing.T) {
	var out bytes.Buffer
	h := &stuckHandler{slog.NewTextHandler(&out, nil), make(chan struct{}, 1), make(chan struct{})}
	a := NewAccessLog(AccessLogOptions{Log: slog.New(h), Queue: 2})
	a.OnEnded(endedView())
	<-h.entered
	for range 10 { // two fit
		a.OnEnded(endedView())
	}
	if a.Missed() != 8 {
		t.Errorf("missed %d, want 8", a.Missed())
	}
	close(h.free)
	a.Close()
	if n := strings.Count(out.String(), "flow ended"); n != 3 {
		t.Errorf("%d lines, want 3", n)
	}
	if !strings.Contains(out.String(), "missed=8") {
		t.Errorf("the log does not say what it missed:\n%s", &out)
	}
}
