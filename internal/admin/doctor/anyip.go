package doctor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/lb/relay/capture"
)

// The VIPs of the probe are addresses for documentation (RFC 5737, RFC 3849).
var probeVIPs = []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")}

// errNoNamespace says that there is nowhere to try.
var errNoNamespace = errors.New("no network namespace to try it in")

// probeAnyIP makes AnyIP routes and listens at them, in a network namespace
// that ends with the probe.
func probeAnyIP(h *host) Finding {
	if h.capsErr == nil && !h.has(unix.CAP_NET_ADMIN) {
		return absent("give CAP_NET_ADMIN, or configure the VIPs on the host (capture bind)", "routes for VIPs need CAP_NET_ADMIN")
	}
	err := elsewhere(tryAnyIP)
	switch {
	case errors.Is(err, errNoNamespace):
		return Finding{Answer: Inconclusive, Detail: err.Error(), Todo: "CAP_NET_ADMIN is there, so it should work"}
	case err != nil:
		return absent("configure the VIPs on the host (capture bind)", "%v", err)
	}
	return present("a VIP that is not configured can be made local by a route")
}

// elsewhere runs try in a network namespace that ends with it.
func elsewhere(try func() error) error {
	result := make(chan error, 1)
	go func() {
		// The thread is never unlocked: it ends with the goroutine, and with
		// it the namespace.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("%w: %w", errNoNamespace, err)
			return
		}
		if err := loopbackUp(); err != nil {
			result <- fmt.Errorf("%w: %w", errNoNamespace, err)
			return
		}
		result <- try()
	}()
	return <-result
}

func tryAnyIP() error {
	routes, err := capture.OpenRoutes(capture.RoutesParams{})
	if err != nil {
		return err
	}
	report, err := routes.Ensure(probeVIPs)
	if err == nil {
		err = tryVIPs(report)
	}
	return errors.Join(err, routes.Close())
}

func tryVIPs(report capture.Report) error {
	var errs []error
	for _, vip := range probeVIPs {
		if err := report.Refused[vip]; errors.Is(err, capture.ErrNoFamily) && vip.Is6() {
			continue // a host without IPv6 has none of these VIPs
		} else if err != nil {
			errs = append(errs, err)
			continue
		}
		l, err := capture.Listen(netip.AddrPortFrom(vip, 80), capture.ListenParams{AnyIP: true})
		if errors.Is(err, capture.ErrPermission) { // a matter of ports below 1024, not of routes
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("listen at %s: %w", vip, err))
			continue
		}
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

func loopbackUp() error {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer nl.Close()
	lo, err := nl.LinkByName("lo")
	if err != nil {
		return err
	}
	return nl.LinkSetUp(lo)
}

func probeLoopback(*host) Finding {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return inconclusive(fmt.Errorf("look at lo: %w", err))
	}
	if lo.Flags&net.FlagUp == 0 {
		return absent("ip link set lo up: anyip needs it", "lo is down")
	}
	return present("lo is up")
}
