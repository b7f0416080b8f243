package health

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/baton-lb/baton/lb/store"
)

// NodePortOptions configures NodePorts. The zero value works.
type NodePortOptions struct {
	Addresses []netip.Addr // where the ports are bound; empty = every address, both families
	Log       *slog.Logger // nil = silent

	// Listen makes a listener of "tcp4" or "tcp6" at an address; nil = package
	// net does.
	Listen func(network, address string) (net.Listener, error)
}

// NodePorts answers load balancers outside that ask whether this node has a
// backend of a service (lb.Service.HealthCheckNodePort; Kubernetes: "health check
// node port"): 200 when one on this node takes new flows, else 503, also when
// those that are left only finish what they have. Of services that share a port, as
// the ports of one Kubernetes Service do, any will do. Hosts are counted, not backends:
// one with several ports is one, and so is one with an address of each family.
//
// It is a store.Programmer for phase Cleanup, so that a port that cannot be had
// holds nothing else of its service back. A port is bound once for each
// address, whatever services and programmings ask for it; one that cannot be
// bound is the service's failure and is tried again.
type NodePorts struct {
	addresses []netip.AddrPort // with port 0
	log       *slog.Logger
	listen    func(network, address string) (net.Listener, error)
	serving   sync.WaitGroup

	mu    sync.RWMutex // guards what follows
	ports map[uint16]*nodePort
}

// nodePort is one port with the services that it speaks for.
type nodePort struct {
	name     string // of all of them
	services map[string]struct{}
	local    int // hosts of backends on this node that take new flows
	servers  map[netip.AddrPort]portServer
}

type portServer struct {
	*http.Server
	l net.Listener
}

var _ store.Programmer = (*NodePorts)(nil)

// NewNodePorts makes NodePorts that answer nowhere yet.
func NewNodePorts(o NodePortOptions) *NodePorts {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if len(o.Addresses) == 0 {
		o.Addresses = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	}
	if o.Listen == nil {
		o.Listen = ListenPort
	}
	n := &NodePorts{log: o.Log, listen: o.Listen, ports: make(map[uint16]*nodePort)}
	for _, a := range o.Addresses {
		n.addresses = append(n.addresses, netip.AddrPortFrom(a, 0))
	}
	return n
}

// Program opens and closes ports for the changed services and counts their
// backends anew.
func (n *NodePorts) Program(_ context.Context, c store.Change) (failures []store.Failure) {
	n.mu.Lock()
	defer n.mu.Unlock()
	changed := make(map[string]bool, len(c.Services))
	for _, name := range c.Services {
		changed[name] = true
	}
	touched := make(map[uint16]bool) // ports to count anew
	for port, p := range n.ports {
		for name := range p.services {
			if s, ok := c.To.Service(name); changed[name] && (!ok || s.HealthCheckNodePort != port || nameOf(s) != p.name) {
				delete(p.services, name)
				touched[port] = true
			}
		}
		if len(p.services) == 0 {
			n.closeLocked(port)
		}
	}
	for _, name := range c.Services {
		s, ok := c.To.Service(name)
		if !ok || s.HealthCheckNodePort == 0 {
			continue
		}
		touched[s.HealthCheckNodePort] = true
		if err := n.openLocked(s); err != nil {
			failures = append(failures, store.Failure{Service: name, Err: err})
		}
	}
	for port := range touched {
		if p := n.ports[port]; p != nil {
			p.count(c.To)
		}
	}
	return failures
}

// nameOf is what a port is asked about.
func nameOf(s *store.Service) string { return cmp.Or(s.HealthCheckName, s.Name) }

// openLocked makes the port of a service answer for it. What is bound stays so.
func (n *NodePorts) openLocked(s *store.Service) error {
	port := s.HealthCheckNodePort
	p := n.ports[port]
	if p == nil {
		p = &nodePort{name: nameOf(s), services: make(map[string]struct{}), servers: make(map[netip.AddrPort]portServer)}
		n.ports[port] = p
	}
	if p.name != nameOf(s) {
		return fmt.Errorf("health check node port %d is that of service %s", port, p.name)
	}
	p.services[s.Name] = struct{}{}
	var errs []error
	for _, a := range n.addresses {
		at := netip.AddrPortFrom(a.Addr(), port)
		if p.servers[at].Server != nil {
			continue
		}
		server, err := n.serve(at, port)
		if err != nil {
			errs = append(errs, fmt.Errorf("health check node port: %w", err))
			continue
		}
		p.servers[at] = server
	}
	return errors.Join(errs...)
}

// count counts the hosts of backends on this node that take new flows.
func (p *nodePort) count(to *store.Snapshot) {
	var hosts [2]map[netip.Addr]struct{} // by family
	for i := range hosts {
		hosts[i] = make(map[netip.Addr]struct{})
	}
	for name := range p.services {
		s, ok := to.Service(name)
		if !ok {
			continue
		}
		for _, b := range s.Pool {
			if !b.Local || !b.TakesNew() {
				continue
			}
			of := hosts[0]
			if b.Address.Addr().Is6() {
				of = hosts[1]
			}
			of[b.Address.Addr()] = struct{}{}
		}
	}
	p.local = max(len(hosts[0]), len(hosts[1]))
}

// ListenPort is how NodePorts makes its listeners.
func ListenPort(network, address string) (net.Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	return config.Listen(context.Background(), network, address)
}

func (n *NodePorts) serve(at netip.AddrPort, port uint16) (portServer, error) {
	network := "tcp6" // of one family each: [::] does not take IPv4 too
	if at.Addr().Is4() {
		network = "tcp4"
	}
	l, err := n.listen(network, at.String())
	if err != nil {
		return portServer{}, err
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { n.answer(w, port) }),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(n.log.Handler(), slog.LevelDebug),
	}
	n.serving.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("a health check node port has stopped to answer", "at", at, "err", err)
		}
	})
	return portServer{server, l}, nil
}

// Listeners lists those that answer now.
func (n *NodePorts) Listeners() map[netip.AddrPort]net.Listener {
	n.mu.RLock()
	defer n.mu.RUnlock()
	all := make(map[netip.AddrPort]net.Listener)
	for _, p := range n.ports {
		for at, s := range p.servers {
			all[at] = s.l
		}
	}
	return all
}

// answer has the form of kube-proxy's, which cloud load balancers know.
func (n *NodePorts) answer(w http.ResponseWriter, port uint16) {
	n.mu.RLock()
	p := n.ports[port]
	var name string
	var local int
	if p != nil {
		name, local = p.name, p.local
	}
	n.mu.RUnlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(local))
	if local == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(struct {
		Service        string `json:"service"`
		LocalEndpoints int    `json:"localEndpoints"`
		Healthy        bool   `json:"serviceProxyHealthy"`
	}{name, local, true})
}

func (n *NodePorts) closeLocked(port uint16) {
	for _, s := range n.ports[port].servers {
		_ = s.Close()
	}
	delete(n.ports, port)
}

// Close closes every port and waits for what is being answered.
func (n *NodePorts) Close() error {
	n.mu.Lock()
	for port := range n.ports {
		n.closeLocked(port)
	}
	n.mu.Unlock()
	n.serving.Wait()
	return nil
}
