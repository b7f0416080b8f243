package main

import (
	"strings"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// Tables of flows are wider than the screen: what cut(1) leaves of them.
const (
	withoutID  = " | cut -c19-"
	wideChoice = " | cut -c35-91" // client, frontend, backend, picked
)

// flows asks what `baton flows` shows, for the story to compare with.
func (d *demo) flows(f admin.FilterSpec, ended bool) (views []flow.View) {
	err := d.api.Flows(d.ctx, f, ended, func(v *flow.View) error {
		views = append(views, *v)
		return nil
	})
	d.must("list flows", err)
	return views
}

func ofService(name string) admin.FilterSpec { return admin.FilterSpec{Service: []string{name}} }

// showBalancing opens connections and lists them.
func (d *demo) showBalancing() {
	d.screen.title("2. Balancing: six connections")
	d.screen.say("client1 connects six times to " + webVIP.String() + " and keeps the connections open.")
	var names []string
	for range 6 {
		t := d.connect(d.clients[0], webVIP)
		d.must("ask over a new connection", t.alive())
		d.web = append(d.web, t)
		names = append(names, t.backend)
	}
	d.screen.say("It is answered by " + strings.Join(names, " ") + ".")
	d.claim(counted(names) == "backend1 2, backend2 2, backend3 2", "each backend answers twice, but: %s", counted(names))
	table := d.shell("baton flows --socket " + demoSocket + withoutID)
	d.claim(len(rows(table)) == 6, "six flows are listed:\n%s", table)
	for _, v := range d.flows(ofService("web"), false) {
		d.claim(v.State == flow.Established && v.Path == flow.PathUserspace, "flow %s is %s on path %s", v.ID, v.State, v.Path)
	}
	d.screen.proof("each backend has two; every one of them is a line here while it lives")
	d.rest(11)
}

// showAffinity has two clients come again and again.
func (d *demo) showAffinity() {
	d.screen.title("3. Affinity: a client comes back to its backend")
	d.screen.say("Service sticky has affinity by client-ip. Both clients connect three times.")
	d.pinned = make(map[*testnet.Host]string)
	var talks []*talk
	for _, c := range d.clients {
		var names []string
		for range 3 {
			t := d.connect(c, stickyVIP)
			talks = append(talks, t)
			names = append(names, t.backend)
		}
		d.screen.say(d.clientName(c) + " is answered by " + strings.Join(names, " ") + ".")
		d.claim(len(distinct(names)) == 1, "%s stays at one backend, but: %s", d.clientName(c), counted(names))
		d.pinned[c] = names[0]
	}
	table := d.shell("baton flows --service sticky -o wide --socket " + demoSocket + wideChoice)
	d.claim(len(rows(table)) == 6, "six flows are listed:\n%s", table)
	var picked []string
	for _, v := range d.flows(ofService("sticky"), false) {
		picked = append(picked, string(v.Picked))
	}
	d.claim(counted(picked) == "affinity 4, algorithm 2", "affinity has picked four of six, but: %s", counted(picked))
	d.screen.proof("the algorithm picks for a new client, affinity from then on")
	for _, t := range talks {
		t.Close()
	}
	d.rest(12)
}
