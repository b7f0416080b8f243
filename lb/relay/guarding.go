package relay

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/capture"
	"github.com/baton-lb/baton/lb/store"
)

// guarding is what the guard has been told. Relay.mu guards it.
//
// Nothing may be open in between that is closed before and after. So an address
// is protected before it has its route, and until it has none; and a frontend is
// answered at from when its socket is there until before its socket closes.
type guarding struct {
	guard     Guard // nil = there is none
	why       error // then
	mode      capture.Mode
	protected map[netip.Addr]struct{}
	told      map[lb.FrontendKey]Rule
	ofService map[string][]lb.FrontendKey // of told
	shared    map[bool]*listener          // by whether it is for IPv4
	warned    bool                        // that nobody tells clients apart
}

func (g *guarding) init(o Options) error {
	g.guard, g.why, g.mode = o.Guard, o.NoGuard, o.Capture
	if g.why == nil {
		g.why = errors.New("none was given")
	}
	if g.guard == nil && g.mode == capture.SKLookup {
		return fmt.Errorf("capture sklookup needs a guard: %w", g.why)
	}
	g.protected = make(map[netip.Addr]struct{})
	g.told = make(map[lb.FrontendKey]Rule)
	g.ofService = make(map[string][]lb.FrontendKey)
	g.shared = make(map[bool]*listener)
	return nil
}

// protect adds the addresses that are not protected yet.
func (g *guarding) protect(vips []netip.Addr) error {
	if g.guard == nil {
		return nil
	}
	var news []netip.Addr
	for _, a := range vips {
		if _, ok := g.protected[a]; !ok {
			news = append(news, a)
		}
	}
	if len(news) == 0 {
		return nil
	}
	if err := g.guard.Protect(news); err != nil {
		return fmt.Errorf("guard addresses: %w", err)
	}
	for _, a := range news {
		g.protected[a] = struct{}{}
	}
	return nil
}

// unprotect gives up those of the addresses that are not among others.
func (g *guarding) unprotect(vips []netip.Addr, but map[netip.Addr]struct{}) error {
	var gone []netip.Addr
	for _, a := range vips {
		_, kept := but[a]
		if _, is := g.protected[a]; is && !kept {
			gone = append(gone, a)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if err := g.guard.Unprotect(gone); err != nil {
		return fmt.Errorf("guard addresses no longer: %w", err)
	}
	for _, a := range gone {
		delete(g.protected, a)
	}
	return nil
}

// shares reports whether connections to an address come through a shared socket.
func (g *guarding) shares(a netip.Addr) bool {
	_, ok := g.protected[a]
	return (ok || a.IsUnspecified()) && g.guard != nil && g.mode != capture.AnyIP
}

// tell lets the guard know what differs from what it was told.
func (g *guarding) tell(rules map[lb.FrontendKey]Rule) error {
	news := make(map[lb.FrontendKey]Rule)
	for k, rule := range rules {
		if !g.told[k].equal(rule) {
			news[k] = rule
		}
	}
	if len(news) == 0 {
		return nil
	}
	err := g.guard.Answer(news)
	for k, rule := range news {
		switch {
		case err != nil:
			g.told[k] = Rule{Answer: answerUnknown}
		case rule.none():
			delete(g.told, k)
		default:
			g.told[k] = rule
		}
	}
	if err != nil {
		return fmt.Errorf("guard frontends: %w", err)
	}
	return nil
}

// note remembers whose the frontends are that the guard knows.
func (g *guarding) note(c store.Change) {
	if g.guard == nil {
		return
	}
	for _, name := range c.Services {
		had := g.ofService[name]
		delete(g.ofService, name)
		var keys []lb.FrontendKey
		for _, fe := range proxied(c.To, name) {
			keys = append(keys, fe.FrontendKey)
		}
		for _, k := range had { // what the guard would not forget
			if g.told[k].Answer == answerUnknown && !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
		if len(keys) > 0 {
			g.ofService[name] = keys
		}
	}
}

// close leaves all addresses to the kernel again, once they have no routes.
func (g *guarding) close() error {
	if g.guard == nil {
		return nil
	}
	return g.unprotect(slices.Collect(maps.Keys(g.protected)), nil)
}
