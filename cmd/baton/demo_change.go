package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// backends asks what `baton backends` shows of web.
func (d *demo) backends() (list []admin.Backend, err error) {
	err = d.api.Backends(d.ctx, ofService("web"), func(b *admin.Backend) error {
		list = append(list, *b)
		return nil
	})
	return list, err
}

// webBackend is what web calls a host.
func webBackend(h *testnet.Host) netip.AddrPort { return netip.AddrPortFrom(h.IP4, webPort) }

// openTo are the open connections to a backend.
func (d *demo) openTo(name string) (open []*talk) {
	for _, t := range d.web {
		if t.backend == name {
			open = append(open, t)
		}
	}
	return open
}

// aRound is how many requests the client makes before and after a backend dies.
const aRound = 12

// showFailover kills a backend while a client keeps asking.
func (d *demo) showFailover() {
	const victim = "backend2"
	host := d.named(victim)
	d.screen.title("4. Failover: a backend is killed")
	d.screen.say("client1 keeps asking " + webVIP.String() + ", a new connection each time. Then the\nserver on " +
		victim + " (" + host.IP4.String() + ") is killed.")
	every := 100 * time.Millisecond
	if d.fast {
		every = 2 * time.Millisecond
	}
	a := d.startAsker(d.clients[0], webVIP, every)
	d.await("requests are made", func() error { return atLeast(a.count(), aRound) })
	before := a.between(func() {
		// The last request's flow ends a moment after its client has closed it.
		d.await("requests are over", func() error {
			if n := len(d.flows(ofService("web"), false)); n != len(d.web) {
				return fmt.Errorf("%d flows are open", n)
			}
			return nil
		})
		d.served[serverName(host, webPort)].Kill()
	})
	d.await("requests are made", func() error { return atLeast(a.count(), aRound) })
	a.stop()
	d.claim(len(a.errs) == 0, "no request fails, but %d did: %w", len(a.errs), errors.Join(a.errs...))
	d.screen.say(fmt.Sprintf("Before: %2d requests, answered by %s.", len(before), counted(before)))
	d.screen.say(fmt.Sprintf("After:  %2d requests, answered by %s.", len(a.names), counted(a.names)))
	d.claim(strings.Contains(counted(before), victim), "%s answers before it dies, but: %s", victim, counted(before))
	d.claim(slices.Equal(distinct(a.names), []string{"backend1", "backend3"}), "the other two answer, but: %s", counted(a.names))
	d.showFailures(host)
	d.screen.proof("no request failed: a backend that refuses costs the flow another pick")
	d.showResets(victim)
	d.revive(host)
	d.rest(18)
}

// revive starts the server of web on a host again, and waits until it is used.
func (d *demo) revive(host *testnet.Host) {
	d.serve(host, webPort)
	d.await(host.Name()+" is used again", func() error {
		if names := d.ask(d.clients[0], webVIP, 1); names[0] != host.Name() {
			return errors.New(names[0] + " answers")
		}
		return nil
	})
	d.screen.say("The server on " + host.Name() + " is started again.")
}

func atLeast(got, want int) error {
	if got < want {
		return fmt.Errorf("%d of %d", got, want)
	}
	return nil
}

// showFailures lists the backends and looks for failures at the one that died.
func (d *demo) showFailures(host *testnet.Host) {
	// The reason of an ejection is long: leave out what is the same in every row.
	d.shell("baton backends --service web --socket " + demoSocket + " | cut -c10-41,58-")
	list, err := d.backends()
	d.must("list backends", err)
	for _, b := range list {
		died := b.Backend == webBackend(host)
		d.claim(died == (b.Failures > 0), "only %s has failures, but %s has %d", host.Name(), b.Backend, b.Failures)
	}
}

// showResets lists the connections that died with their backend.
func (d *demo) showResets(victim string) {
	for _, t := range d.openTo(victim) {
		_ = t.SetDeadline(time.Now().Add(storyDeadline))
		_, err := t.Read(make([]byte, 1))
		d.claim(errors.Is(err, syscall.ECONNRESET), "open connections to %s are reset, but: %w", victim, err)
	}
	d.await("the records are closed", func() error {
		n := 0
		for _, v := range d.flows(ofService("web"), true) {
			if v.Reason == flow.ReasonReset && v.EndedBy == flow.ByBackend {
				n++
			}
		}
		return atLeast(n, len(d.openTo(victim)))
	})
	table := d.shell("baton flows --ended --socket " + demoSocket + " | grep reset" + withoutID)
	d.claim(strings.Count(table, "\n") == len(d.openTo(victim)), "its two flows are listed:\n%s", table)
	d.screen.proof("the two that were open there were reset by it, and their records say so")
}

// showDrain takes a backend out of service.
func (d *demo) showDrain() {
	const drained = "backend3"
	host := d.named(drained)
	target := "web/" + webBackend(host).String()
	d.screen.title("5. Drain: no new connections to a backend")
	d.shell("baton drain " + target + " --socket " + demoSocket)
	names := d.ask(d.clients[0], webVIP, 6)
	d.screen.say("Six new connections are answered by " + counted(names) + ".")
	d.claim(slices.Equal(distinct(names), []string{"backend1", "backend2"}), "the other two answer, but: %s", counted(names))
	d.shell("baton backends --service web --socket " + demoSocket)
	d.stillOpen(drained)
	d.screen.proof("the two connections open to " + drained + " go on")
	d.shell("baton undrain " + target + " --socket " + demoSocket)
	d.rest(12)
}

// stillOpen proves that the open connections to a backend work.
func (d *demo) stillOpen(name string) {
	open := d.openTo(name)
	d.claim(len(open) == 2, "two connections are open to %s, but: %d", name, len(open))
	for _, t := range open {
		d.must("ask over an open connection to "+name, t.alive())
	}
}

// showReload takes a backend out of the file.
func (d *demo) showReload() {
	const removed = "backend1"
	host := d.named(removed)
	addr := webBackend(host)
	d.screen.title("6. Reload: the file is edited")
	d.shell(fmt.Sprintf("sed -i.old '/%s/d' %s", addr, demoFile))
	d.shell("diff "+demoFile+".old "+demoFile, 1)
	d.await("the file is applied", func() error {
		list, err := d.backends()
		if err == nil && len(list) != 2 {
			err = fmt.Errorf("web has %d backends", len(list))
		}
		return err
	})
	names := d.ask(d.clients[0], webVIP, 6)
	d.screen.say("Six new connections are answered by " + counted(names) + ".")
	d.claim(slices.Equal(distinct(names), []string{"backend2", "backend3"}), "the other two answer, but: %s", counted(names))
	d.shell("baton backends --service web --socket " + demoSocket)
	d.stillOpen(removed)
	table := d.shell(fmt.Sprintf("baton flows --backend %s --socket %s%s", addr, demoSocket, withoutID))
	d.claim(len(rows(table)) == 2, "two flows are listed:\n%s", table)
	d.screen.proof("its two connections go on, though " + removed + " is in the file no longer")
	d.rest(16)
}
