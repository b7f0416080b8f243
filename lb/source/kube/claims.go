package kube

import (
	"slices"

	"github.com/baton-lb/baton/lb"
)

// claims says which port has a frontend: of several that ask for it, the one of
// the oldest Service.
type claims struct {
	owners    map[lb.FrontendKey]*port
	contested map[lb.FrontendKey][]*port // the owner first
}

func newClaims() claims {
	return claims{make(map[lb.FrontendKey]*port), make(map[lb.FrontendKey][]*port)}
}

func (c *claims) owner(k lb.FrontendKey) *port { return c.owners[k] }

// add enters a port that asks for a frontend, and returns those for which
// something has changed by that.
func (c *claims) add(k lb.FrontendKey, p *port) []*port {
	owner := c.owners[k]
	if owner == nil {
		c.owners[k] = p
		return nil
	}
	list := c.contested[k]
	if list == nil {
		list = []*port{owner}
	}
	at := len(list)
	for at > 0 && p.before(list[at-1]) {
		at--
	}
	list = slices.Insert(list, at, p)
	c.contested[k] = list
	if at > 0 {
		return nil
	}
	c.owners[k] = p
	return list[1:]
}

// remove takes out a port, and returns those for which something has changed by
// that.
func (c *claims) remove(k lb.FrontendKey, p *port) []*port {
	list := c.contested[k]
	if list == nil {
		delete(c.owners, k)
		return nil
	}
	at := slices.Index(list, p)
	list = slices.Delete(list, at, at+1)
	c.contested[k] = list
	if len(list) == 1 {
		delete(c.contested, k)
	}
	if at > 0 {
		return nil
	}
	c.owners[k] = list[0]
	return list
}
