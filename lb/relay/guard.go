package relay

import (
	"net/netip"

	"github.com/baton-lb/baton/lb"
)

// Guard decides inside the kernel, before it looks for a socket by address, what
// answers at frontends, and that nothing else answers at their addresses. All
// calls may be repeated. It stays its maker's, who closes it after the Relay.
type Guard interface {
	// Protect makes addresses refuse, as closed ports do, every port of TCP and
	// UDP at which no frontend answers.
	Protect(vips []netip.Addr) error
	// Unprotect leaves them to the kernel again.
	Unprotect(vips []netip.Addr) error
	// Answer says what answers at frontends, in the place of what was said before.
	Answer(at map[lb.FrontendKey]Answer) error
	// Share makes a listening socket the one that answers at every frontend of
	// its family with AnswerShared, until it is closed.
	Share(fd int) error
}

// Answer is what answers at a frontend.
type Answer uint8

// The answers. The zero value is for frontends that a guard need not know.
const (
	AnswerNone   Answer = iota // as at every other port of the address
	AnswerOwn                  // the socket that is bound to the frontend's address and port
	AnswerShared               // the socket that was shared
	AnswerSilent               // nothing, not even a refusal
	AnswerRefuse               // a refusal

	answerUnknown Answer = 255 // the guard failed when it was told
)
