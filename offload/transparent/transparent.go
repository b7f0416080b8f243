package transparent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/offload/bpf"
)

// repairEvery is when rules are looked at without a word from the kernel.
const repairEvery = time.Minute

// Options configures a Transparent. The zero value works.
type Options struct {
	Peers int          // for how many backends there is room at first; 0 = bpf.DefaultPeers
	Log   *slog.Logger // nil = silence

	// Node says that this host is a node of a cluster: the router of its pods, and of
	// no network that it shares with others.
	Node bool
}

// Transparent has answers to clients' addresses delivered to the sockets of this host.
//
//	Open --> packets of peers are delivered --Close--> nothing of ours is left
//	                                          Detach--> rules stay for the next process
type Transparent struct {
	// Immutable.
	log      *slog.Logger
	kernel   kernel
	release  func() // closes kernel
	loopback int
	divert   *bpf.Divert
	ways     *ways
	events   *nl.NetlinkSocket
	stop     context.CancelFunc
	running  sync.WaitGroup

	serves4, serves6 atomic.Bool // the family has its rules

	// mu guards what follows, and is held over the kernel calls of one operation.
	mu      sync.Mutex
	without map[int]error // families that have no rules, and why
	closed  bool
}

// Open begins to deliver in the calling thread's network namespace, which has no peers yet. What an earlier process has
// left is taken over. The error may wrap bpf.ErrNotSupported or bpf.ErrPermission.
func Open(o Options) (_ *Transparent, err error) {
	t := &Transparent{log: o.Log, without: make(map[int]error), release: func() {}, stop: func() {}}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("deliver answers to clients' addresses: %w", err), t.Close())
		}
	}()
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	t.kernel, t.release = handle, handle.Close
	t.ways = newWays(handle, o.Node)
	if t.loopback, err = loopback(handle); err != nil {
		return nil, err
	}
	if t.divert, err = bpf.OpenDivert(bpf.DivertOptions{Mark: Mark, Peers: o.Peers, Log: t.log}); err != nil {
		return nil, err
	}
	t.events, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE)
	if err != nil {
		return nil, fmt.Errorf("subscribe to rules: %w", err)
	}
	if err := t.ensure(); err != nil {
		return nil, err
	}
	if err := t.divert.Sync(); err != nil {
		t.log.Warn("answers that come by some devices are not delivered", "err", err)
	}
	t.follow()
	return t, nil
}

// ensure makes rules and routes as they must be. It is an error that neither family has them.
func (t *Transparent) ensure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	for _, family := range families {
		before := t.without[family]
		err := ensure(t.kernel, family, t.loopback)
		t.without[family] = err
		t.serves(family).Store(err == nil)
		if err != nil && !noFamily(err) && (before == nil || before.Error() != err.Error()) {
			t.log.Warn("clients' addresses cannot be kept", "family", familyName(family), "err", err)
		}
	}
	if err := t.without[families[0]]; err != nil && t.without[families[1]] != nil {
		return err
	}
	return nil
}

// follow keeps everything as it must be, whoever changes it.
func (t *Transparent) follow() {
	ctx, stop := context.WithCancel(context.Background())
	t.stop = stop
	t.running.Go(func() {
		if err := t.divert.Follow(ctx); err != nil {
			t.log.Error("devices that come are not noticed any more", "err", err)
		}
	})
	wake := make(chan struct{}, 1)
	t.running.Go(func() { listen(t.events, wake) })
	t.running.Go(func() {
		tick := time.NewTicker(repairEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-wake:
			case <-tick.C:
			}
			_ = t.ensure() // has told what it cannot do
		}
	})
}

// listen turns events into wakes. What they say is asked anew.
func listen(events *nl.NetlinkSocket, wake chan<- struct{}) {
	for {
		_, _, err := events.Receive()
		if err != nil && (errors.Is(err, os.ErrClosed) || !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR)) {
			return
		}
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// Ask says why a backend is not to see a client's address, or "" when it may; and whether its answers then come here only as
// long as a socket of this host waits for them, because a bridge would carry them past. It does not block, and may be called
// by many at once.
func (t *Transparent) Ask(client, backend netip.Addr) (why flow.NotTransparent, bridged bool) {
	family := netlink.FAMILY_V6
	if client.Is4() {
		family = netlink.FAMILY_V4
	}
	if !t.serves(family).Load() {
		return flow.NotTransparentUnavailable, false
	}
	return t.ways.ask(client, backend)
}

// Way is how this host reaches an address.
type Way struct {
	Here   bool // it is this host's own
	Tunnel bool // by a tunnel to another host
	Bridge bool // by a bridge of this host
}

// Way says how this host reaches an address.
func (t *Transparent) Way(a netip.Addr) Way { return t.ways.way(a) }

func (t *Transparent) serves(family int) *atomic.Bool {
	if family == netlink.FAMILY_V4 {
		return &t.serves4
	}
	return &t.serves6
}

// Add has the answers of more backends delivered. Those that are there already stay.
func (t *Transparent) Add(backends []bpf.Peer) error { return t.divert.AddPeers(backends) }

// Remove leaves the answers of backends to the network again. Those that are not there are fine.
func (t *Transparent) Remove(backends []bpf.Peer) error { return t.divert.RemovePeers(backends) }

// Counts is what has been delivered so far.
func (t *Transparent) Counts() (bpf.DivertCounts, error) { return t.divert.Counts() }

// Devices says by which devices answers may come.
func (t *Transparent) Devices() []bpf.Device { return t.divert.Devices() }

// Close ends delivery and leaves nothing in the kernel. It may be called more than once.
func (t *Transparent) Close() error { return t.close(true) }

// Detach ends delivery by this process and leaves the rules to another one that has begun.
func (t *Transparent) Detach() error { return t.close(false) }

func (t *Transparent) close(all bool) error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	t.serves4.Store(false)
	t.serves6.Store(false)
	t.mu.Unlock()
	t.stop()
	if t.events != nil {
		t.events.Close()
	}
	t.running.Wait()
	var errs []error
	for _, family := range families {
		if all && t.kernel != nil {
			_, err := remove(t.kernel, family)
			errs = append(errs, err)
		}
	}
	if t.divert != nil {
		errs = append(errs, t.divert.Close())
	}
	t.release()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("end delivery to clients' addresses: %w", err)
	}
	return nil
}

// Cleanup removes what an earlier process has left in the calling thread's network namespace, a line each.
func Cleanup() (did []string, err error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer handle.Close()
	var errs []error
	for _, family := range families {
		removed, err := remove(handle, family)
		did, errs = append(did, removed...), append(errs, err)
	}
	removed, err := bpf.RemoveDivert()
	return append(did, removed...), errors.Join(append(errs, err)...)
}
