package e2e

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// `baton reset` of a flow in the kernel: both sides see a reset at once, whether
// the flow is idle or full in both directions.
func TestOffloadResetByCommand(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.offload = inKernel
		backend := make(chan error, 1)
		w.Backends[0].Serve(8080, func(c net.Conn) {
			var line [1]byte
			if _, err := io.ReadFull(c, line[:]); err == nil && line[0] == 'f' {
				go hungry(c)
			}
			_, err := readEnd(c, 20*time.Second)
			backend <- err
		})
		b := start(t, w.Balancer, w.service(nil))
		for _, kind := range []string{"idle", "full"} {
			atClient, atBackend := w.wire(t, w.ClientLink.B), w.wire(t, w.BackendLinks[0].B)
			c := w.dial(t)
			w.carried(b, c)
			if _, err := io.WriteString(c, kind[:1]); err != nil {
				t.Fatal(err)
			}
			var writing sync.WaitGroup
			var wrote error
			if kind == "full" {
				writing.Go(func() { _, wrote = testnet.CopySum(c, endless(1)) })
				eventually(t, "it is full", func() error { return b.moved(c, 4<<20) })
			}
			out, err := b.command(w.Balancer, "reset", b.flowOf(c.LocalAddr()).ID.String())
			if err != nil {
				t.Fatalf("reset: %v: %s", err, out)
			}
			_, read := readEnd(c, 10*time.Second)
			writing.Wait()
			// Only one of read(2) and write(2) is told.
			if !isReset(read) && !isReset(wrote) {
				t.Errorf("%s: the client's connection ended with %v and %v, want a reset", kind, read, wrote)
			}
			if err := <-backend; kind == "idle" && !isReset(err) {
				t.Errorf("%s: the backend's connection ended with %v, want a reset", kind, err)
			}
			v := b.endedOf(c.LocalAddr())
			wantEnd(t, v, flow.ByBaton, flow.ReasonAdminReset)
			w.wantPath(t, v)
			for _, at := range []wire{atClient, atBackend} {
				if sent, received := at.ends(t); sent+received > 0 {
					t.Errorf("%s: at the %s %d ends were sent and %d received", kind, at.port.Host.Name(), sent, received)
				}
			}
		}
		if out, err := b.command(w.Balancer, "flows", "--path", "bpf"); err != nil || strings.Count(out, "\n") > 1 {
			t.Errorf("the command lists %v:\n%s", err, out)
		}
	})
}

// moved is nil when a flow has carried that many bytes.
func (b *baton) moved(c net.Conn, n uint64) error {
	if v := b.flowOf(c.LocalAddr()); v.BytesToBackend+v.BytesToClient < n {
		return io.ErrShortWrite
	}
	return nil
}

// A flow in the kernel is known to the command by all that it says of others.
func TestOffloadIsShown(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.offload = inKernel
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil))
		trace, stopTrace := b.traced(t, w)
		ended := []string{`service="web"`, `path="bpf"`, `ended_by="client"`, `reason="closed"`}
		before, handed := b.metric("baton_flows_total", ended...), b.metric("baton_handoff_seconds_count")
		sent := b.metric("baton_bytes_total", `service="web"`, `direction="to_backend"`)
		c, _ := w.named(t)
		v := w.carried(b, c.TCPConn)[0]
		if v.HandedOffAt.Before(v.StartedAt) || v.NotOffloaded != "" || v.Picked == "" || v.Frontend != w.vip || v.Backend != w.backend(0) {
			t.Errorf("it is shown as %+v", v)
		}
		c.works(t)
		eventually(t, "its bytes are counted", func() error {
			v = b.flowOf(c.LocalAddr())
			if line := uint64(len("are you there\n")); v.BytesToBackend != line || v.BytesToClient < line || v.PacketsToBackend == 0 || v.PacketsToClient == 0 {
				return io.ErrShortWrite
			}
			return nil
		})
		if since := time.Since(v.LastSeenAt); since > 20*time.Second {
			t.Errorf("it was last seen %v ago", since)
		}
		if out, err := b.command(w.Balancer, "flows", "--path", "bpf", "-o", "wide"); err != nil || !strings.Contains(out, v.ID.String()) || !strings.Contains(out, "offloaded") {
			t.Errorf("the command shows %v:\n%s", err, out)
		}
		b.wantMetric(1, "baton_flows_active", `service="web"`, `protocol="tcp"`, `path="bpf"`)
		b.wantMetric(sent+float64(v.BytesToBackend), "baton_bytes_total", `service="web"`, `direction="to_backend"`)
		c.ends(t)
		b.endedOf(c.LocalAddr())
		b.wantMetric(before+1, "baton_flows_total", ended...)
		b.wantMetric(handed+1, "baton_handoff_seconds_count")
		stopTrace()
		for _, want := range []string{`"event":"handed-off"`, `"path":"bpf"`, `"state":"offloaded"`, `"event":"ended"`} {
			if !strings.Contains(trace.String(), want) {
				t.Errorf("the trace has no %s:\n%s", want, trace)
			}
		}
	})
}

// traced has the command tell events until it is stopped.
func (b *baton) traced(t *testing.T, w world) (out *logBuffer, stop func()) {
	t.Helper()
	out = new(logBuffer)
	cmd := w.Balancer.Command(t.Context(), batonPath, "trace", "-o", "json", "--socket", b.socket())
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// It has no sign of its own that it listens: have flows told until it does.
	eventually(t, "the trace has begun", func() error {
		if c, err := w.Client.Dial("tcp", w.vip); err == nil {
			c.Close()
		}
		if out.String() == "" {
			return io.ErrNoProgress
		}
		return nil
	})
	b.noFlows()
	return out, func() {
		eventually(t, "the trace has the end", func() error {
			if !strings.Contains(out.String(), `"ended"`) {
				return io.ErrNoProgress
			}
			return nil
		})
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}
