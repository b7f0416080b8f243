package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/steer/program"
)

// SetService tells of a service, or tells it anew.
func (s *Steer) SetService(v program.Service) error {
	name := flowName{}
	switch {
	case uint32(v.ID) >= s.flows.maps.SteerUsage.MaxEntries():
		return fmt.Errorf("tell service %s: %w", v.Name, errNoRoom)
	case copy(name.Bytes[:], v.Name) < len(v.Name):
		return fmt.Errorf("tell service %s: its name is longer than %d bytes", v.Name, len(name.Bytes))
	}
	e := flowService{
		Affinity: uint64(v.Affinity), Connections: v.Connections, Sessions: v.Sessions, NewPerSecond: v.NewPerSecond,
		Times: [5]uint64{
			uint64(v.Times.Opening), uint64(v.Times.Idle), uint64(v.Times.HalfClosed), uint64(v.Times.Closed), uint64(v.Times.UDPIdle),
		},
	}
	if err := errors.Join(s.flows.maps.SteerNames.Put(uint32(v.ID), name), s.flows.maps.SteerServices.Put(uint32(v.ID), e)); err != nil {
		return fmt.Errorf("tell service %s: %w", v.Name, err)
	}
	return nil
}

func serviceOf(id uint32, e flowService, name flowName) program.Service {
	t := e.Times
	return program.Service{
		ID: program.ServiceID(id), Name: cString(name.Bytes[:]), Affinity: time.Duration(e.Affinity),
		Times: program.Times{
			Opening: time.Duration(t[0]), Idle: time.Duration(t[1]), HalfClosed: time.Duration(t[2]), Closed: time.Duration(t[3]), UDPIdle: time.Duration(t[4]),
		},
		Connections: e.Connections, Sessions: e.Sessions, NewPerSecond: e.NewPerSecond,
	}
}

func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// DeleteService forgets one.
func (s *Steer) DeleteService(id program.ServiceID) error {
	err := errors.Join(forget(s.flows.maps.SteerServices, uint32(id)), forget(s.flows.maps.SteerNames, uint32(id)))
	if err != nil {
		return fmt.Errorf("delete service %d: %w", id, err)
	}
	return nil
}

// SetBackend tells of a backend, or tells it anew.
func (s *Steer) SetBackend(b program.Backend) error {
	if int(b.ID) >= len(s.open) {
		return fmt.Errorf("tell backend %s: %w", b.Address, errNoRoom)
	}
	e := flowBackend{
		Address: flowAddress(addressKey(b.Address.Addr())), Port: wirePort(b.Address.Port()), Ipv6: bit(!b.Address.Addr().Unmap().Is4()),
		Takes: bit(b.Takes), Keep: steerKeep(b.Keep), Limit: b.Limit, Service: uint32(b.Service),
	}
	if b.Masked.IsValid() {
		e.Masked = flowAddress(addressKey(b.Masked))
	}
	if err := s.flows.maps.SteerBackends.Put(uint32(b.ID), e); err != nil {
		return fmt.Errorf("tell backend %s: %w", b.Address, err)
	}
	s.services.Store(b.ID, b.Service)
	return nil
}

func backendOf(id uint32, e flowBackend) program.Backend {
	b := program.Backend{
		ID: program.BackendID(id), Service: program.ServiceID(e.Service), Address: addrPort(e.Address, e.Port),
		Takes: e.Takes != 0, Limit: e.Limit, Keep: keepOf(e.Keep),
	}
	if e.Masked != (flowAddress{}) {
		b.Masked = addrPort(e.Masked, 0).Addr()
	}
	return b
}

// steerKeep is whom a backend may see: nobody if it may not see those who are near.
func steerKeep(k program.Keep) (bits flowKeep) {
	if !k.Near {
		return 0
	}
	bits = flowKeepKEEP
	if k.Far {
		bits |= flowKeepKEEP_FAR
	}
	if k.Beside {
		bits |= flowKeepKEEP_BESIDE
	}
	if k.Bridged {
		bits |= flowKeepKEEP_BRIDGED
	}
	return bits
}

func keepOf(k flowKeep) program.Keep {
	return program.Keep{Near: k&flowKeepKEEP != 0, Far: k&flowKeepKEEP_FAR != 0, Beside: k&flowKeepKEEP_BESIDE != 0, Bridged: k&flowKeepKEEP_BRIDGED != 0}
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// DeleteBackend forgets one.
func (s *Steer) DeleteBackend(id program.BackendID) error {
	if err := forget(s.flows.maps.SteerBackends, uint32(id)); err != nil {
		return fmt.Errorf("delete backend %d: %w", id, err)
	}
	return nil
}

// What clients may be, and what a pool may answer, in C.
var (
	clients = [...]flowClient{
		program.SourceOutside: flowClientCLIENT_OUTSIDE, program.SourceInside: flowClientCLIENT_INSIDE,
		program.SourceRefused: flowClientCLIENT_REFUSED, program.SourceDropped: flowClientCLIENT_DROPPED,
	}
	answers = [...]flowPoolAnswer{
		program.ToStack: flowPoolAnswerANSWER_STACK, program.Refuse: flowPoolAnswerANSWER_REFUSE, program.Drop: flowPoolAnswerANSWER_DROP,
		program.ByTicket: flowPoolAnswerANSWER_TICKET, program.ByTable: flowPoolAnswerANSWER_TABLE, program.ByPacket: flowPoolAnswerANSWER_PACKET,
	}
)

// steerClient is what a client is, and whether its address is kept.
func steerClient(v program.Verdict, keep bool) flowClient {
	return clients[v] | flowClient(bit(keep))*flowClientCLIENT_KEPT
}

func verdictOf(c flowClient) program.Verdict {
	for v, of := range clients {
		if of == c&^flowClientCLIENT_KEPT {
			return program.Verdict(v)
		}
	}
	return program.SourceOutside
}

func answerOf(a flowPoolAnswer) program.Answer {
	for v, of := range answers {
		if of == a {
			return program.Answer(v)
		}
	}
	return program.ToStack
}

// SetFrontend tells of a frontend, or tells it anew.
func (s *Steer) SetFrontend(f program.Frontend) error {
	e := flowEntrance{
		Service: uint32(f.Service), Outside: uint32(f.Outside), Inside: uint32(f.Inside), Sources: uint32(f.Sources),
		Closed: steerClient(f.Closed, f.Keep),
	}
	if err := s.flows.maps.SteerFrontends.Put(steerFrontend(f.FrontendKey), e); err != nil {
		return fmt.Errorf("tell frontend %s: %w", f.FrontendKey, err)
	}
	atomic.StoreUint32(&s.settings.On, 1)
	return nil
}

func steerFrontend(k lb.FrontendKey) flowFrontend {
	return flowFrontend{Address: flowAddress(addressKey(k.Address.Addr())), Port: wirePort(k.Address.Port()), Protocol: uint8(k.Proto)}
}

func frontendOf(k flowFrontend, e flowEntrance) program.Frontend {
	return program.Frontend{
		FrontendKey: lb.FrontendKey{Proto: flow.Proto(k.Protocol), Address: addrPort(k.Address, k.Port)},
		Service:     program.ServiceID(e.Service), Outside: program.PoolID(e.Outside), Inside: program.PoolID(e.Inside),
		Sources: program.SourcesID(e.Sources), Closed: verdictOf(e.Closed), Keep: e.Closed&flowClientCLIENT_KEPT != 0,
	}
}

// DeleteFrontend forgets one: its flows go on.
func (s *Steer) DeleteFrontend(k lb.FrontendKey) error {
	if err := forget(s.flows.maps.SteerFrontends, steerFrontend(k)); err != nil {
		return fmt.Errorf("delete frontend %s: %w", k, err)
	}
	return nil
}

// sourcesOf is what a set holds: its number in steer_sources, and the keys there.
type sourcesOf struct {
	number uint32
	keys   []flowSource
}

// SetSources replaces a set: a new one is written aside, and takes the place of the old one at once.
func (s *Steer) SetSources(id program.SourcesID, sources []program.Source) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("tell sources %d: %w", id, err)
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	old, had := s.sets[id]
	if len(sources) == 0 {
		if err := forget(s.flows.maps.SteerSets, uint32(id)); err != nil {
			return err
		}
		delete(s.sets, id)
		return s.forgetSources(old)
	}
	s.lastSet++
	fresh := sourcesOf{number: s.lastSet}
	for k, v := range steerSources(s.lastSet, sources) {
		fresh.keys = append(fresh.keys, k)
		if err := s.flows.maps.SteerSources.Put(k, v); err != nil {
			return errors.Join(err, s.forgetSources(fresh))
		}
	}
	if err := s.flows.maps.SteerSets.Put(uint32(id), fresh.number); err != nil {
		return errors.Join(err, s.forgetSources(fresh))
	}
	s.sets[id] = fresh
	if !had {
		return nil
	}
	if err := Grace(); err != nil { // somebody may be looking into the old one
		return err
	}
	return s.forgetSources(old)
}

func (s *Steer) forgetSources(of sourcesOf) error {
	for _, k := range of.keys {
		if err := forget(s.flows.maps.SteerSources, k); err != nil {
			return err
		}
	}
	return nil
}

// steerSources are the entries of a set. In 16 bytes ::/0 would hold IPv4 too: of that nothing is said then.
func steerSources(set uint32, sources []program.Source) map[flowSource]flowClient {
	entries := map[flowSource]flowClient{steerSource(set, netip.PrefixFrom(netip.IPv4Unspecified(), 0)): flowClientCLIENT_UNSAID}
	for _, src := range sources {
		entries[steerSource(set, src.Prefix.Masked())] = steerClient(src.Verdict, src.Keep)
	}
	return entries
}

func steerSource(set uint32, p netip.Prefix) flowSource {
	k := sourceKey(set, p)
	return flowSource{Prefix: k.Prefix, Set: k.Set, Address: flowAddress(k.Address)}
}

// forgetAll deletes keys until one is not there.
func forgetAll[K any](m *ebpf.Map, key func(i uint32) K) error {
	for i := uint32(0); ; i++ {
		err := m.Delete(key(i))
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
