package main

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

const nodePort = 30080

var nodePortVIPs = []string{"10.96.0.40:80", "[fd96::40]:80"}

func nodePorts(h *stepHost, change func(*lb.Frontend)) []lb.Service {
	return []lb.Service{
		h.service("web", change, fmt.Sprintf("0.0.0.0:%d", nodePort), fmt.Sprintf("[::]:%d", nodePort)),
		h.service("vip", nil, nodePortVIPs...),
	}
}

func nodePortsServed(h *stepHost) []lb.Service { return nodePorts(h, nil) }

func nodePortsRefuse(h *stepHost) []lb.Service {
	all := nodePorts(h, nil)
	all[0].Backends = nil
	return all
}

func nodePortsDrop(h *stepHost) []lb.Service {
	return nodePorts(h, func(fe *lb.Frontend) { fe.Subset, fe.WhenNone = lb.LocalBackends, lb.Drop })
}

func nodePortsInside(h *stepHost) []lb.Service {
	return nodePorts(h, func(fe *lb.Frontend) {
		fe.Subset, fe.WhenNone, fe.Inside = lb.LocalBackends, lb.Drop, single(h.Other)
	})
}

// hostPorts are a port at all addresses of the balancer that others reach.
func (s *cluster) hostPorts(port uint16) (all []string) {
	for _, p := range []testnet.Port{s.ClientLink.A, s.BackendLinks[0].A} {
		for _, a := range []netip.Addr{p.IP4, p.IP6} {
			all = append(all, netip.AddrPortFrom(a, port).String())
		}
	}
	return all
}

// TestNodePorts: a frontend at the wildcard address answers at every address of the host, from the address that was asked,
// at the loopback addresses too, and at no VIP; without backends it refuses or drops there.
func TestNodePorts(t *testing.T) {
	s := newCluster(t)
	serve := serveSteps(t, s.Balancer, "nodeports", true, s.known)
	all := s.hostPorts(nodePort)
	own := append([]string{fmt.Sprintf("127.0.0.1:%d", nodePort), fmt.Sprintf("127.0.0.9:%d", nodePort), fmt.Sprintf("[::1]:%d", nodePort)}, all...)
	vips := []string{fmt.Sprintf("10.96.0.40:%d", nodePort), fmt.Sprintf("[fd96::40]:%d", nodePort)}
	served := func(when string) {
		t.Helper()
		expectAt(t, when, s.Client, nil, all...)
		expectAt(t, when, s.Balancer, nil, own...)
		expectAt(t, when+", at a VIP", s.Client, errRefusal, vips...)
		expectAt(t, when+", at a VIP", s.Balancer, errRefusal, vips...)
		expectAt(t, when, s.Client, nil, nodePortVIPs...)
	}
	served("served")
	// A socket of their own would keep others from the port.
	if ln, err := s.Balancer.Listen("tcp", netip.AddrPortFrom(netip.IPv4Unspecified(), nodePort)); err != nil {
		t.Errorf("the frontend has a socket of its own: %v", err)
	} else {
		expectAt(t, "beside somebody who came later", s.Client, nil, all...)
		_ = ln.Close()
	}

	serve.next()
	expectAt(t, "no backends", s.Client, errRefusal, all...)
	expectAt(t, "no backends", s.Balancer, errRefusal, own...)

	serve.next()
	expectAt(t, "none local", s.Client, errSilence, all...)
	expectAt(t, "none local", s.Balancer, errSilence, own...)
	expectAt(t, "none local, at a VIP", s.Client, errRefusal, vips...)

	serve.next()
	expectAt(t, "none local, outside", s.Client, errSilence, all...)
	expectAt(t, "none local, inside", s.other, nil, all...)
	expectAt(t, "none local, this host", s.Balancer, nil, own...)

	serve.next()
	expectAt(t, "gone", s.Client, errRefusal, all...)

	serve.next()
	served("again")
}

// TestNodePortsWithoutAGuard: they have sockets of their own, to which a VIP leads too, but nobody is served there.
func TestNodePortsWithoutAGuard(t *testing.T) {
	s := newCluster(t)
	serve := serveSteps(t, s.Balancer, "nodeports", false, s.known)
	all := s.hostPorts(nodePort)
	expectAt(t, "served", s.Client, nil, all...)
	expectAt(t, "served", s.Balancer, nil, fmt.Sprintf("127.0.0.1:%d", nodePort), fmt.Sprintf("[::1]:%d", nodePort))
	for _, vip := range []string{fmt.Sprintf("10.96.0.40:%d", nodePort), fmt.Sprintf("[fd96::40]:%d", nodePort)} {
		at := netip.MustParseAddrPort(vip)
		if name, err := askFrom(s.Client, netip.Addr{}, lb.FrontendKey{Proto: flow.TCP, Address: at}, answerWithin); !errors.Is(err, errAfterwards) {
			t.Errorf("at a VIP: got %q, %v", name, err)
		}
		if name, err := askFrom(s.Client, netip.Addr{}, lb.FrontendKey{Proto: flow.UDP, Address: at}, silenceAfter); !errors.Is(err, errSilence) {
			t.Errorf("at a VIP, UDP: got %q, %v", name, err)
		}
	}
	serve.next()
	expectAt(t, "no backends", s.Client, errRefusal, all...)
	serve.next()
	expectAt(t, "none local", s.Client, errSilence, all...)
	serve.next()
	expectAt(t, "none local, inside", s.other, nil, all...)
}

// TestNodePortOfSomebodyElse: the port of a program that is there already is left to it, and taken when that has gone.
func TestNodePortOfSomebodyElse(t *testing.T) {
	s := newCluster(t)
	ln, err := s.Balancer.Listen("tcp", netip.AddrPortFrom(s.Balancer.IP4, nodePort))
	if err != nil {
		t.Fatal(err)
	}
	server := testnet.ServeListener(ln, testnet.Named("somebody else"))
	t.Cleanup(server.Close)
	serveSteps(t, s.Balancer, "taken", true, s.known)
	k := lb.FrontendKey{Proto: flow.TCP, Address: netip.AddrPortFrom(s.Balancer.IP4, nodePort)}
	if name, err := askFrom(s.Client, netip.Addr{}, k, answerWithin); err != nil || name != "somebody else" {
		t.Errorf("got %q, %v", name, err)
	}
	server.Close()
	testnet.Eventually(t, 20*time.Second, "the node port is served", func() error {
		name, err := askFrom(s.Client, netip.Addr{}, k, answerWithin)
		if err == nil && name != "backend" {
			err = fmt.Errorf("%q answers", name)
		}
		return err
	})
}

const ownPort = 8081

func ownPorts(h *stepHost) (all []string) {
	for _, a := range h.Own {
		all = append(all, netip.AddrPortFrom(a, ownPort).String())
	}
	return all
}

// ownAddress has an external address that is one of the host's own.
func ownAddress(h *stepHost) []lb.Service { return []lb.Service{h.service("own", nil, ownPorts(h)...)} }

// ownAddressAndNodePort has a node port at the same number besides, without backends.
func ownAddressAndNodePort(h *stepHost) []lb.Service {
	wild := h.service("wild", func(fe *lb.Frontend) { fe.WhenNone = lb.Drop }, fmt.Sprintf("0.0.0.0:%d", ownPort), fmt.Sprintf("[::]:%d", ownPort))
	wild.Backends = nil
	return append(ownAddress(h), wild)
}

// nodePortThenOwn has them the other way round: the node port serves everywhere, but for the host's one address.
func nodePortThenOwn(h *stepHost) []lb.Service {
	all := ownAddressAndNodePort(h)
	all[0].Backends, all[1].Backends = all[1].Backends, all[0].Backends
	for i := range all[0].Frontends {
		all[0].Frontends[i].WhenNone = lb.Drop
	}
	return all
}

func ownAddressEmpty(h *stepHost) []lb.Service {
	all := ownAddress(h)
	all[0].Backends = nil
	return all
}

// TestOwnAddress: a frontend at an address of the host is there by address and port; the address keeps its other ports, and
// gets no route.
func TestOwnAddress(t *testing.T) {
	s := newCluster(t)
	s.Balancer.Serve(22, testnet.Named("ssh"))
	serve := serveSteps(t, s.Balancer, "own", true, s.known)
	own := ownPorts(&s.known)
	others := []string{netip.AddrPortFrom(s.BackendLinks[0].A.IP4, ownPort).String(), netip.AddrPortFrom(s.BackendLinks[0].A.IP6, ownPort).String()}
	ssh := func() {
		t.Helper()
		for _, a := range s.known.Own {
			if name, err := askFrom(s.Client, netip.Addr{}, lb.FrontendKey{Proto: flow.TCP, Address: netip.AddrPortFrom(a, 22)}, answerWithin); err != nil || name != "ssh" {
				t.Errorf("%s port 22: %q, %v", a, name, err)
			}
		}
	}
	expectAt(t, "own", s.Client, nil, own...)
	expectAt(t, "own, at another address", s.Client, errRefusal, others...)
	ssh()
	serve.next()
	expectAt(t, "beside a silent node port", s.Client, nil, own...)
	expectAt(t, "the silent node port", s.Client, errSilence, others...)
	serve.next()
	expectAt(t, "the node port", s.Client, nil, others...)
	expectAt(t, "silent beside a node port", s.Client, errSilence, own...)
	ssh()
	serve.next()
	expectAt(t, "without backends", s.Client, errRefusal, own...)
	expectAt(t, "no node port", s.Client, errRefusal, others...)
	ssh()
}
