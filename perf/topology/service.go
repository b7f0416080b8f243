package topology

import (
	"fmt"

	"github.com/baton-lb/baton/internal/flow"
)

// Service is what a balancer offers at the VIP and what backends serve, both on
// the same port.
type Service struct {
	Name  string
	Proto flow.Proto
	Port  uint16
}

func (s Service) String() string { return fmt.Sprintf("%s (%s)", s.Name, s.Proto) }

// The services. Their ports are below the range that hosts connect from.
var (
	Echo    = Service{"echo", flow.TCP, 81}     // answers with what it is sent
	Sink    = Service{"sink", flow.TCP, 82}     // takes bulk data
	Source  = Service{"source", flow.TCP, 83}   // gives bulk data
	UDPEcho = Service{"udp-echo", flow.UDP, 84} // answers with what it is sent
	UDPSink = Service{"udp-sink", flow.UDP, 85} // takes datagrams

	// Services is all of them.
	Services = []Service{Echo, Sink, Source, UDPEcho, UDPSink}
)

// Of is the services of a protocol.
func Of(p flow.Proto) []Service {
	var of []Service
	for _, s := range Services {
		if s.Proto == p {
			of = append(of, s)
		}
	}
	return of
}
