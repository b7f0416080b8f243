package testnet

import "fmt"

// Star is the topology most tests want: a client and some backends, each on a
// link of its own to the balancer between them.
//
//	client .2 --10.202.0.0/24, fd00:202::/64-- .1 balancer .1 --10.202.k.0/24, fd00:202:k::/64-- .2 backend k
//
// The balancer forwards. Client and backends have it as their default gateway for
// both families, so a VIP needs to be known on the balancer only. Backends are
// called backend1, backend2, ...
type Star struct {
	Net      *Net
	Client   *Host
	Balancer *Host // IP4 and IP6 are those on the client's link
	Backends []*Host

	// End A of each is the balancer's.
	ClientLink   Link
	BackendLinks []Link
}

// NewStar makes a star with n backends.
func NewStar(t TB, n int) *Star {
	t.Helper()
	net := New(t)
	s := &Star{Net: net, Balancer: net.Host("balancer"), Client: net.Host("client")}
	s.Balancer.Forwarding(true)
	s.ClientLink = s.join(s.Client)
	for k := range n {
		h := net.Host(fmt.Sprintf("backend%d", k+1))
		s.Backends = append(s.Backends, h)
		s.BackendLinks = append(s.BackendLinks, s.join(h))
	}
	return s
}

// AddClient makes one more client, joined to the balancer like the first.
func (s *Star) AddClient(name string) *Host {
	s.Net.t.Helper()
	h := s.Net.Host(name)
	s.join(h)
	return h
}

func (s *Star) join(h *Host) Link {
	s.Net.t.Helper()
	l := s.Net.Connect(s.Balancer, h)
	h.DefaultVia(l.A.IP4)
	h.DefaultVia(l.A.IP6)
	return l
}
