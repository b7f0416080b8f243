package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// showTrace follows one flow whose backend does not answer.
func (d *demo) showTrace() {
	const traced = "trace.txt"
	who, name := d.clients[0], d.clientName(d.clients[0])
	d.screen.title("8. One flow: every decision, and how it ended")
	d.screen.say("The server that " + name + " is used to at sticky (" + d.pinned[who] + ") is stopped.\n" +
		name + " connects once more, says something, and closes.")
	d.served[serverName(d.named(d.pinned[who]), stickyPort)].Kill()
	trace := d.background(">", traced, "trace", "--service", "sticky", "--socket", demoSocket)
	d.awaitTrace(traced)
	v := d.oneFlow(who)
	d.await("the trace has the end of flow "+v.ID.String(), func() error {
		text, err := os.ReadFile(d.path(traced))
		if err == nil && !bytes.Contains(text, []byte(v.ID.String()+"  "+string(flow.EventEnded))) {
			err = errors.New(string(text))
		}
		return err
	})
	d.end(trace, "baton trace")
	text := d.shell(fmt.Sprintf("grep %s %s | cut -c7-16,35-", v.ID, traced))
	d.claimTrace(text)
	d.screen.proof("affinity chose, the backend refused, another was picked: at once")
	d.shell("baton flows --ended --socket " + demoSocket + withoutID + " | tail -n3")
	d.screen.proof("ended by %s: %s; the byte counts are final", v.EndedBy, v.Reason)
	d.rest(18)
}

// awaitTrace has client2 connect until the trace shows it: it is live then.
func (d *demo) awaitTrace(name string) {
	d.await("the trace is live", func() error {
		d.ask(d.clients[1], stickyVIP, 1)
		info, err := os.Stat(d.path(name))
		if err == nil && info.Size() == 0 {
			err = errors.New("no events yet")
		}
		return err
	})
}

// oneFlow makes a connection, from its beginning to its end, and returns its
// record.
func (d *demo) oneFlow(from *testnet.Host) (v flow.View) {
	t := d.connect(from, stickyVIP)
	d.claim(t.backend != d.pinned[from], "another backend than %s answers", d.pinned[from])
	d.must("ask over the new connection", t.alive())
	d.must("close one side", t.Conn.(interface{ CloseWrite() error }).CloseWrite())
	_, err := io.Copy(io.Discard, t)
	d.must("read to the end", err)
	client := netip.MustParseAddrPort(t.LocalAddr().String())
	t.Close()
	d.await("the flow of "+client.String()+" has ended", func() error {
		found := d.flows(admin.FilterSpec{Client: []string{client.String()}}, true)
		if len(found) != 1 {
			return fmt.Errorf("%d ended flows", len(found))
		}
		v = found[0]
		return nil
	})
	d.claim(v.EndedBy == flow.ByClient && v.Reason == flow.ReasonClosed, "the client closed it, but: %s, %s", v.EndedBy, v.Reason)
	return v
}

// claimTrace checks that the events have come, in this order.
func (d *demo) claimTrace(text string) {
	rest := text
	for _, event := range []string{
		"accepted", "by affinity", "dial-failed", "by retry", "dialled", "first-byte", "half-closed", "ended",
	} {
		_, after, ok := strings.Cut(rest, event)
		d.claim(ok, "the trace has %q in its place:\n%s", event, text)
		rest = after
	}
}

// finish closes what is open and stops the balancer.
func (d *demo) finish() {
	for _, t := range d.web {
		t.Close()
	}
	d.end(d.instance, "baton run")
}
