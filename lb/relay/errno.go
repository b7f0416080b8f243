package relay

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
)

// dialFailure sorts the errno of a failed dial.
func dialFailure(err error) flow.DialFailure {
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return flow.DialRefused
	case errors.Is(err, unix.ETIMEDOUT):
		return flow.DialTimeout
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EHOSTDOWN),
		errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.ENOPROTOOPT), errors.Is(err, unix.EPROTO):
		// The last two are the ICMP errors "protocol unreachable" and "parameter
		// problem" (icmp_err_convert).
		return flow.DialUnreachable
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return flow.DialReset
	case errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.EADDRINUSE):
		return flow.DialNoPorts
	case outOfResources(err):
		return flow.DialNoResources
	}
	return flow.DialLocal
}

// answerFailure sorts the errno with which a dial that was under way has failed.
// By then it is what the network says: EACCES is an ICMPv6 "administratively
// prohibited" (tab_unreach), no rule of this host.
func answerFailure(err error) flow.DialFailure {
	if why := dialFailure(err); why != flow.DialLocal {
		return why
	}
	return flow.DialUnreachable
}

// outOfResources reports whether the host, or this process, has run out of
// descriptors or memory.
func outOfResources(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) ||
		errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM)
}

// resourceDrop is the counter for an error of outOfResources.
func resourceDrop(err error) flow.Drop {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return flow.DropNoDescriptors
	}
	return flow.DropNoMemory
}

// endReason sorts the errno with which an established connection broke.
func endReason(err error) flow.Reason {
	switch {
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return flow.ReasonReset
	case errors.Is(err, unix.ETIMEDOUT), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		// TCP reports what the network last said about segments that it has
		// given up on.
		return flow.ReasonPeerLost
	}
	return flow.ReasonNetworkError
}
