package relay

import (
	"net/netip"
	"slices"

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
	// Answer says what answers at frontends, in the place of what was said before. One
	// at the wildcard address is at every address that has no frontend at its port and
	// is not protected.
	Answer(at map[lb.FrontendKey]Rule) error
	// Share makes a listening socket the one that answers at every frontend of
	// its family with AnswerShared, until it is closed.
	Share(fd int) error
}

// Rule says what answers at a frontend, by who asks. The zero value is for frontends
// that a guard need not know.
type Rule struct {
	Answer       Answer
	Allow        []netip.Prefix // clients that are heard: the others get not even a refusal. Empty = all
	Inside       []netip.Prefix // clients that get InsideAnswer
	InsideAnswer Answer
}

func (r Rule) equal(o Rule) bool {
	return r.Answer == o.Answer && r.InsideAnswer == o.InsideAnswer && slices.Equal(r.Allow, o.Allow) && slices.Equal(r.Inside, o.Inside)
}

// none reports whether a guard need not know the rule.
func (r Rule) none() bool { return r.equal(Rule{}) }

// gives reports whether some clients get one of the answers.
func (r Rule) gives(any ...Answer) bool {
	return slices.Contains(any, r.Answer) || len(r.Inside) > 0 && slices.Contains(any, r.InsideAnswer)
}

// Answer is what answers.
type Answer uint8

// The answers.
const (
	AnswerNone   Answer = iota // as at every other port of the address
	AnswerOwn                  // the socket that is bound to the frontend's address and port
	AnswerShared               // the socket that was shared
	AnswerSilent               // nothing, not even a refusal
	AnswerRefuse               // a refusal

	answerUnknown Answer = 255 // the guard failed when it was told
)
