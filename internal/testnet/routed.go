package testnet

// Routed is a client that reaches the balancer over two routers, between which a
// link may be narrower than the client's own and the balancer's:
//
//	client --- far ---narrow--- near --- balancer
type Routed struct {
	Client    *Host
	Far, Near *Host
	Narrow    Link // End A is Near's.
}

// AddRouted makes a client behind two routers.
func (s *Star) AddRouted(name string, narrow LinkSpec) Routed {
	s.Net.t.Helper()
	r := Routed{Client: s.Net.Host(name), Far: s.Net.Host(name + "-far"), Near: s.Net.Host(name + "-near")}
	for _, h := range []*Host{r.Far, r.Near} {
		h.Forwarding(true)
	}
	outer := s.join(r.Near)
	r.Narrow = s.Net.Link(r.Near, r.Far, narrow)
	r.Far.DefaultVia(r.Narrow.A.IP4)
	r.Far.DefaultVia(r.Narrow.A.IP6)
	inner := s.Net.Connect(r.Far, r.Client)
	r.Client.DefaultVia(inner.A.IP4)
	r.Client.DefaultVia(inner.A.IP6)
	r.Near.AddRoute(inner.Net4, r.Narrow.B.IP4)
	r.Near.AddRoute(inner.Net6, r.Narrow.B.IP6)
	for _, l := range []Link{r.Narrow, inner} {
		s.Balancer.AddRoute(l.Net4, outer.B.IP4)
		s.Balancer.AddRoute(l.Net6, outer.B.IP6)
	}
	return r
}
