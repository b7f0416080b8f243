package file

import (
	"fmt"
	"net/netip"

	"github.com/baton-lb/baton/lb"
)

// conflicts finds what is wrong between services: a name or a frontend that two
// of them have.
type conflicts struct {
	d         *decoder
	lines     Lines
	names     map[string]int
	frontends map[lb.FrontendKey]listing
}

// listing is where a frontend stands.
type listing struct {
	service string
	line    int
}

func newConflicts(d *decoder, lines Lines) *conflicts {
	return &conflicts{d: d, lines: lines, names: map[string]int{}, frontends: map[lb.FrontendKey]listing{}}
}

// add compares a service with all before it.
func (c *conflicts) add(s *service, n *node) {
	if s.Name == "" {
		return
	}
	line, _ := locate(n, "name")
	if first, dup := c.names[s.Name]; dup {
		c.report(line, "service %s is defined already at line %d", s.Name, first)
	} else {
		c.names[s.Name] = line
		c.lines.Services[s.Name] = n.Line
	}
	list := child(n, "frontends")
	for i := range s.Frontends {
		line := n.Line
		if list != nil && i < len(list.Content) {
			line = deref(list.Content[i]).Line
		}
		c.addFrontend(s.Name, &s.Frontends[i], line)
	}
}

func (c *conflicts) addFrontend(name string, f *lb.Frontend, line int) {
	if !f.Address.IsValid() {
		return
	}
	c.addKey(name, f, f.FrontendKey, line)
	for _, a := range f.More {
		key := lb.FrontendKey{Proto: f.Proto, Address: netip.AddrPortFrom(a, f.Address.Port())}
		c.addKey(name, f, key, line)
	}
	if _, there := c.lines.Frontends[f.FrontendKey]; !there {
		c.lines.Frontends[f.FrontendKey] = line
	}
}

func (c *conflicts) addKey(name string, f *lb.Frontend, key lb.FrontendKey, line int) {
	first, dup := c.frontends[key]
	switch {
	case !dup:
		c.frontends[key] = listing{name, line}
	case first.service != name:
		c.report(line, "frontend %s of service %s is already listed by service %s at line %d",
			f, name, first.service, first.line)
	}
}

func (c *conflicts) report(line int, format string, args ...any) {
	scope := c.d.scope
	c.d.scope = ""
	c.d.report(line, "", fmt.Sprintf(format, args...), nil)
	c.d.scope = scope
}
