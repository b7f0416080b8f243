package main

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/flow"
)

// showHandoff hands one live flow to the kernel and kills the balancer.
func (d *demo) showHandoff() {
	d.screen.title("9. Handoff: the kernel carries a live flow")
	t := d.connect(d.clients[0], webVIP)
	d.must("ask over the new connection", t.alive())
	of := admin.FilterSpec{Client: []string{t.LocalAddr().String()}}
	before := d.flows(of, false)
	d.claim(len(before) == 1, "one flow is listed, but: %d", len(before))
	id := before[0].ID
	d.screen.say("client1 has a connection to " + t.backend + ". Baton gives it to BPF.")
	told := d.shell("baton handoff "+id.String()+" --socket "+demoSocket, 0, 1)
	if !strings.Contains(told, "handed off") {
		d.screen.say("This host cannot do that: baton doctor says what is missing.")
		t.Close()
		d.rest(6)
		return
	}
	table := fmt.Sprintf("baton flows --client %s --socket %s%s", t.LocalAddr(), demoSocket, withoutID)
	d.shell(table)
	d.screen.command("kill -9 " + fmt.Sprint(d.instance.Process.Pid))
	d.must("kill the balancer", d.instance.Process.Signal(unix.SIGKILL))
	_ = d.instance.Wait()
	for range 3 {
		d.must("ask while there is no balancer", t.alive())
	}
	d.screen.proof("the connection goes on without the process")
	d.startBaton()
	d.shell(table)
	after := d.flows(of, false)
	d.claim(len(after) == 1 && after[0].ID == id && after[0].Path == flow.PathBPF && after[0].BytesToClient > before[0].BytesToClient,
		"the next process knows the flow, but: %+v", after)
	d.screen.proof("the next process found it, and counts on")
	t.Close()
	d.await("the flow has ended", func() error {
		if len(d.flows(of, false)) > 0 {
			return errors.New("it is listed")
		}
		return nil
	})
	d.rest(14)
}
