package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// nameServer answers every datagram with its host's name.
type nameServer struct {
	conn    net.PacketConn
	running sync.WaitGroup
}

// serveNames starts a backend's server of names.
func (d *demo) serveNames(h *testnet.Host) {
	conn, err := h.ListenPacket("udp", netip.AddrPortFrom(h.IP4, namesPort))
	d.must("listen on "+h.Name(), err)
	s := &nameServer{conn: conn}
	s.running.Go(func() {
		buf := make([]byte, 1500)
		for {
			_, from, err := conn.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = conn.WriteTo([]byte(h.Name()), from)
			}
		}
	})
	d.names[h.Name()] = s
	d.Cleanup(s.close)
}

// close closes the port: from now on the host refuses.
func (s *nameServer) close() {
	s.conn.Close()
	s.running.Wait()
}

// askNames sends n datagrams from one socket and returns who has answered.
func (d *demo) askNames(c net.Conn, n int) (names []string) {
	buf := make([]byte, 1500)
	for range n {
		d.await("a datagram is answered", func() error {
			if _, err := c.Write([]byte("who are you?")); err != nil {
				return err
			}
			_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			got, err := c.Read(buf)
			if err == nil {
				names = append(names, string(buf[:got]))
			}
			return err
		})
	}
	return names
}

// showUDP has two clients send datagrams, and takes one's backend away.
func (d *demo) showUDP() {
	d.screen.title("7. UDP: a session for each client")
	d.screen.say("Both clients send six datagrams to " + namesVIP.String() + ", each from one socket.")
	var socks []net.Conn
	var first []string
	for _, c := range d.clients {
		sock, err := c.Dial("udp", namesVIP)
		d.must("open a socket", err)
		d.Cleanup(func() { sock.Close() })
		names := d.askNames(sock, 6)
		d.screen.say(d.clientName(c) + " is answered by " + counted(names) + ".")
		d.claim(len(distinct(names)) == 1, "a session has one backend, but: %s", counted(names))
		socks, first = append(socks, sock), append(first, names[0])
	}
	table := d.shell("baton flows --protocol udp --socket " + demoSocket + withoutID)
	d.claim(len(rows(table)) == 2, "two sessions are listed:\n%s", table)
	gone := d.named(first[0])
	d.screen.say("The server on " + gone.Name() + " (" + gone.IP4.String() + ") is stopped; client1 goes on.")
	d.names[gone.Name()].close()
	names := d.askNames(socks[0], 6)
	d.screen.say("client1 is answered by " + counted(names) + ".")
	d.claim(!strings.Contains(counted(names), gone.Name()), "another backend answers, but: %s", counted(names))
	d.shell(fmt.Sprintf("baton flows --client %s --socket %s%s", socks[0].LocalAddr(), demoSocket, withoutID))
	for _, v := range d.flows(ofService("names"), false) {
		d.claim(v.State == flow.Established, "session %s is %s", v.ID, v.State)
	}
	d.screen.proof("the same session at another backend: the closed port has told (ICMP)")
	d.rest(12)
}
