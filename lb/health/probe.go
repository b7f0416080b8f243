package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// target is what one probe asks, and whom.
type target struct {
	*check
	address netip.AddrPort
}

// outcome is the answer to one probe.
type outcome struct {
	result flow.ProbeResult
	detail string // more than result says; "" = nothing
}

var passed = outcome{result: flow.ProbePassed}

// ask runs one probe.
func (c *Checker) ask(j job) outcome {
	ctx, cancel := context.WithTimeout(c.ctx, j.check.Timeout)
	defer cancel()
	return c.probe(ctx, j.target())
}

func (j job) target() target {
	a := j.backend.address
	if j.check.Port != 0 {
		a = netip.AddrPortFrom(a.Addr(), j.check.Port)
	}
	return target{j.check, a}
}

// reason is the outcome as users read it beside the address of the backend. What
// matters comes first: tables cut the end.
func (o outcome) reason(c *check) string {
	what := o.detail
	switch {
	case what != "":
	case o.result == flow.ProbeTimeout:
		what = "no answer within " + c.Timeout.String()
	default:
		what = string(o.result)
	}
	how := what + ": " + string(c.Probe) + " probe"
	if c.Probe == lb.ProbeHTTP {
		how += " of " + c.Path
	}
	if c.Port != 0 {
		how += fmt.Sprintf(" at port %d", c.Port)
	}
	return how
}

// prober asks over the network.
type prober struct {
	dial  func(ctx context.Context, d *net.Dialer, network string, to netip.AddrPort) (net.Conn, error)
	local func(to netip.AddrPort) netip.AddrPort // nil = the kernel's choice
}

func dialContext(ctx context.Context, d *net.Dialer, network string, to netip.AddrPort) (net.Conn, error) {
	return d.DialContext(ctx, network, to.String())
}

// probe asks once. ctx bounds it.
func (p *prober) probe(ctx context.Context, t target) outcome {
	switch t.Probe {
	case lb.ProbeHTTP:
		return p.http(ctx, t)
	case lb.ProbeUDP:
		return p.udp(ctx, t)
	}
	return p.tcp(ctx, t)
}

// portTries is how often a probe asks for another local port when what
// DialLocal said is taken.
const portTries = 16

// connect makes a socket that ctx ends: what blocks on it then fails.
func (p *prober) connect(ctx context.Context, network string, to netip.AddrPort) (c net.Conn, release func(), err error) {
	d := net.Dialer{Control: setOptions, KeepAlive: -1}
	d.SetMultipathTCP(false)
	for try := 0; ; try++ {
		if p.local != nil {
			d.LocalAddr = localAddr(network, p.local(to), to)
		}
		c, err = p.dial(ctx, &d, network, to)
		if err == nil || d.LocalAddr == nil || try == portTries || !noPort(err) {
			break
		}
	}
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return c, func() { stop(); closeNow(c) }, nil
}

// closeNow ends a connection by a reset, unless the other side has closed it
// before: 10,000 backends would leave 300,000 connections in TIME_WAIT else.
func closeNow(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// localAddr is a in the words of package net; nil = the kernel's choice.
func localAddr(network string, a, to netip.AddrPort) net.Addr {
	if !a.Addr().IsValid() && a.Port() == 0 {
		return nil
	}
	if !a.Addr().IsValid() {
		unspecified := netip.IPv6Unspecified()
		if to.Addr().Is4() {
			unspecified = netip.IPv4Unspecified()
		}
		a = netip.AddrPortFrom(unspecified, a.Port())
	}
	if network == "udp" {
		return net.UDPAddrFromAddrPort(a)
	}
	return net.TCPAddrFromAddrPort(a)
}

func noPort(err error) bool {
	return errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL)
}

// failed sorts an error of the network.
func failed(err error) outcome {
	var timeout net.Error
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return outcome{flow.ProbeRefused, "connection refused"}
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return outcome{flow.ProbeReset, "connection reset"}
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.ENETDOWN):
		return outcome{flow.ProbeUnreachable, "network unreachable"}
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EHOSTDOWN), errors.Is(err, unix.ENOPROTOOPT):
		return outcome{flow.ProbeUnreachable, "host unreachable"}
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPROTO): // other ICMP errors, RFC 4443 section 3.1
		return outcome{flow.ProbeUnreachable, "prohibited by the network"}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return outcome{result: flow.ProbeTimeout}
	}
	return outcome{flow.ProbeLocal, err.Error()}
}
