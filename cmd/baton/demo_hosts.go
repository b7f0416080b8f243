package main

import (
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/baton-lb/baton/internal/admin/client"
	"github.com/baton-lb/baton/internal/testnet"
)

// The VIPs of the services, and the ports of their backends.
var (
	webVIP    = netip.MustParseAddrPort("10.96.0.10:80")
	stickyVIP = netip.MustParseAddrPort("10.96.0.11:80")
	namesVIP  = netip.MustParseAddrPort("10.96.0.11:53")
)

const (
	webPort    = 80
	stickyPort = 81
	namesPort  = 53
)

const demoHosts = `
  client1 %-10s --+              +-- %-10s backend1
                       +-- balancer --+-- %-10s backend2
  client2 %-10s --+              +-- %-10s backend3

Each is a network namespace of its own. The clients know two addresses that no
host has configured (VIPs): 10.96.0.10 and 10.96.0.11. A backend says its name
to whoever connects, and then returns what it is sent.
`

const demoConfig = `services:
  - name: web
    frontends: ["tcp://10.96.0.10:80"]
    backends:
      - "%[1]s:80"
      - "%[2]s:80"
      - "%[3]s:80"
  - name: sticky
    frontends: ["tcp://10.96.0.11:80"]
    backends: ["%[1]s:81", "%[2]s:81", "%[3]s:81"]
    affinity: {by: client-ip, timeout: 1h}
  - name: names
    frontends: ["udp://10.96.0.11:53"]
    backends: ["%[1]s:53", "%[2]s:53", "%[3]s:53"]
`

// showHosts makes the hosts and draws them.
func (d *demo) showHosts() {
	d.screen.title("1. Two clients, a balancer, three backends")
	d.star = testnet.NewStar(d.stage, 3)
	d.clients = []*testnet.Host{d.star.Client, d.star.AddClient("client2")}
	d.served = make(map[string]*testnet.Server)
	d.names = make(map[string]*nameServer)
	for _, b := range d.star.Backends {
		d.serve(b, webPort)
		d.serve(b, stickyPort)
		d.serveNames(b)
	}
	b := d.star.Backends
	d.screen.say(fmt.Sprintf(demoHosts, d.clients[0].IP4, b[0].IP4, b[1].IP4, d.clients[1].IP4, b[2].IP4))
	d.rest(8)
}

// clientName is what the story calls a client.
func (d *demo) clientName(h *testnet.Host) string {
	return fmt.Sprintf("client%d", 1+slices.Index(d.clients, h))
}

// serve starts a backend's server.
func (d *demo) serve(h *testnet.Host, port uint16) {
	d.served[serverName(h, port)] = h.Serve(port, testnet.Named(h.Name()))
}

func serverName(h *testnet.Host, port uint16) string { return fmt.Sprintf("%s:%d", h.Name(), port) }

// named is the backend called name.
func (d *demo) named(name string) *testnet.Host {
	for _, b := range d.star.Backends {
		if b.Name() == name {
			return b
		}
	}
	panic("no backend is called " + name)
}

// showFile writes the file and starts the balancer with it.
func (d *demo) showFile() {
	d.screen.title("The file, and the balancer that serves it")
	d.makeDirectory()
	d.screen.say("On the balancer, in the directory\n" + d.dir)
	b := d.star.Backends
	text := fmt.Sprintf(demoConfig, b[0].IP4, b[1].IP4, b[2].IP4)
	d.must("write the file", os.WriteFile(d.path(demoFile), []byte(text), 0o644))
	d.shell("cat " + demoFile)
	d.shell("baton check --config " + demoFile)
	d.rest(14)
	d.api = client.New(d.path(demoSocket))
	d.Cleanup(d.api.Close)
	d.startBaton()
	table := d.shell("baton services --socket " + demoSocket)
	d.claim(len(rows(table)) == 3, "three services are listed:\n%s", table)
	d.screen.proof("all services are ready at addresses that only Baton knows")
	d.rest(6)
}
