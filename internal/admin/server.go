package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/store"
)

// Store is the desired state that the server shows, and may drain.
type Store interface {
	Snapshot() *store.Snapshot
	FrontendStatus(lb.FrontendKey) store.Status
	Drain(store.Target) error
	Undrain(store.Target) error
	Programmed(ctx context.Context, revision uint64) error
}

var _ Store = (*store.Store)(nil)

// AffinityTable knows how many clients of a service are kept at a backend.
type AffinityTable interface{ Entries(service string) int }

// Readiness says how the instance is. Lifecycle is one.
type Readiness interface {
	Ready() error // nil = send clients here
	Live() error  // nil = a restart would help nothing
}

// Options configures a Server. Registry and Store must be set; of the rest the
// zero value works.
type Options struct {
	Socket string // path of the unix socket; "" = none
	HTTP   string // ADDRESS:PORT of the TCP listener; "" = none

	// Aside makes the socket where nobody looks for it: another instance has its
	// path, until Publish. TCP is a listener at HTTP that is there already; nil =
	// it is made.
	Aside bool
	TCP   net.Listener

	Registry  *flow.Registry
	Store     Store
	Affinity  AffinityTable
	Health    HealthChecker               // nil = nothing is probed
	Handoffs  Handoffs                    // nil = no flow can be handed off
	Metrics   *Metrics                    // nil = NewMetrics()
	FewSeries bool                        // metrics of single backends are left out: there may be half a million
	Drops     func() map[flow.Drop]uint64 // what others than the registry count; nil = nobody does
	Readiness Readiness                   // nil = always ready
	Doctor    func(context.Context) any   // what /v1/doctor answers; nil = not there
	Upgrade   UpgradeFunc                 // hands everything over to another process; nil = cannot
	Instance  Holder                      // who we are
	Node      NodeOptions                 // where to ask whether this node takes traffic
	Steers    func() bool                 // whether this host can steer; nil = it can
	ProxyMode string                      // what /proxyMode says; "" = it is not there
	Version   string
	Log       *slog.Logger // nil = silent

	TraceBuffer int           // events that a slow reader of a trace may fall behind; 0 = 4096
	SlowReader  time.Duration // how long one write may take; 0 = 1m
}

// Limits on what peers may do.
const (
	maxSocketConns = 64
	maxTCPConns    = 64
	maxHeader      = 64 << 10
	headerTimeout  = 5 * time.Second
	idleTimeout    = 2 * time.Minute
	stopTimeout    = 2 * time.Second
)

// Server is the API of one instance.
type Server struct {
	o         Options
	log       *slog.Logger
	metrics   *Metrics
	startedAt time.Time
	requests  context.Context // of all; ends with Run
	cancel    context.CancelFunc
	upgrading chan struct{} // has one while an upgrade is under way

	closers   []func() error
	socket    *unixSocket // nil = there is none
	tcp       net.Listener
	node      net.Listener
	listeners []served
	closeOnce sync.Once
	closeErr  error
}

// served is a listener and who serves there.
type served struct {
	l   *boundedListener
	srv *http.Server
}

// New takes the socket and the TCP address, so that what is wrong with them
// shows before anything else has begun. Run serves them; Close gives them back.
func New(o Options) (_ *Server, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	if o.Readiness == nil {
		o.Readiness = alwaysReady{}
	}
	if o.TraceBuffer == 0 {
		o.TraceBuffer = 4096
	}
	if o.SlowReader == 0 {
		o.SlowReader = time.Minute
	}
	s := &Server{o: o, log: o.Log, metrics: o.Metrics, startedAt: time.Now(), upgrading: make(chan struct{}, 1)}
	s.requests, s.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.metrics.collect(&o); err != nil {
		return nil, err
	}
	if err := s.listenUnix(); err != nil {
		return nil, err
	}
	if err := s.listenTCP(); err != nil {
		return nil, err
	}
	return s, s.listenNode()
}

func (s *Server) listenUnix() (err error) {
	if s.o.Socket == "" {
		return nil
	}
	listen := listenUnix
	if s.o.Aside {
		listen = listenAside
	}
	if s.socket, err = listen(s.o.Socket); err != nil {
		return err
	}
	return s.serve(s.socket, maxSocketConns, spareCount, s.control())
}

func (s *Server) listenTCP() (err error) {
	if s.o.HTTP == "" {
		return nil
	}
	if s.tcp = s.o.TCP; s.tcp == nil {
		if s.tcp, err = net.Listen("tcp", s.o.HTTP); err != nil {
			return fmt.Errorf("listen for metrics and health on %s: %w", s.o.HTTP, err)
		}
	}
	return s.serve(s.tcp, maxTCPConns, 0, s.readOnly())
}

func (s *Server) listenNode() (err error) {
	if s.o.Node.Address == "" {
		return nil
	}
	if s.node = s.o.Node.TCP; s.node == nil {
		if s.node, err = net.Listen("tcp", s.o.Node.Address); err != nil {
			return fmt.Errorf("listen for questions about this node's health on %s: %w", s.o.Node.Address, err)
		}
	}
	return s.serve(s.node, maxTCPConns, 0, s.nodeHealth())
}

func (s *Server) serve(l net.Listener, conns, spare int, h http.Handler) error {
	b, err := bound(l, conns, spare)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	s.closers = append(s.closers, b.Close)
	s.listeners = append(s.listeners, served{b, &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       2 * headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return s.requests },
	}})
	return nil
}

// Run serves until ctx is done, then ends what still runs and returns nil.
func (s *Server) Run(ctx context.Context) error {
	defer s.cancel() // ends the streams
	failed := make(chan error, len(s.listeners))
	var wg sync.WaitGroup
	for _, l := range s.listeners {
		wg.Go(func() {
			if err := l.srv.Serve(l.l); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve %s: %w", l.l.Addr(), err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.cancel()
	s.stop()
	wg.Wait()
	return errors.Join(err, s.Close())
}

// stop lets answers finish for a moment, then cuts them.
func (s *Server) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	for _, l := range s.listeners {
		if l.srv.Shutdown(ctx) != nil {
			l.srv.Close()
		}
	}
}

// Addr is the TCP address, the zero value when there is none.
func (s *Server) Addr() net.Addr {
	for _, l := range s.listeners {
		if a, ok := l.l.Addr().(*net.TCPAddr); ok {
			return a
		}
	}
	return nil
}

// Close gives the socket and the TCP address back. It may be called more than
// once, also after Run, which does it itself.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		s.cancel()
		for _, c := range s.closers {
			if err := c(); err != nil && !errors.Is(err, net.ErrClosed) {
				s.closeErr = errors.Join(s.closeErr, err)
			}
		}
	})
	return s.closeErr
}

type alwaysReady struct{}

func (alwaysReady) Ready() error { return nil }
func (alwaysReady) Live() error  { return nil }
