package file

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"

	"github.com/baton-lb/baton/lb"
)

// MaxSize is the largest file that is read.
const MaxSize = 64 << 20

// Config is what one baton.yaml says. It is not changed after it was read.
type Config struct {
	File     string // as it was named
	Admin    Admin
	Capture  Capture
	Source   SourceAddress
	Zone     string // this balancer's own; "" = no preference
	Services []lb.Service

	Lines Lines

	sum [sha256.Size]byte // of the content
}

// Admin is where the admin API listens.
type Admin struct {
	Socket string // path of the unix socket
	HTTP   string // HOST:PORT; "" = off
}

// Capture is how the addresses of frontends come to this host.
type Capture string

// The ways to capture.
const (
	CaptureAuto     Capture = "auto"
	CaptureSKLookup Capture = "sklookup"
	CaptureAnyIP    Capture = "anyip"
	CaptureBind     Capture = "bind"
)

// Captures lists every Capture.
var Captures = []Capture{CaptureAuto, CaptureSKLookup, CaptureAnyIP, CaptureBind}

// SourceAddress is from where backends are connected to.
type SourceAddress struct {
	Addresses []netip.Addr // empty = the kernel's choice
	Ports     PortRange
}

// PortRange is Lo to Hi, both included.
type PortRange struct{ Lo, Hi uint16 }

func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.Lo, r.Hi) }

// Lines says where in the file things stand, for messages at run time.
type Lines struct {
	Services  map[string]int
	Frontends map[lb.FrontendKey]int
}

// Default is the configuration of a file that says nothing.
func Default() *Config {
	return &Config{
		Admin:   Admin{Socket: "/run/baton/admin.sock", HTTP: "127.0.0.1:10249"},
		Capture: CaptureAuto,
		Source:  SourceAddress{Ports: PortRange{32768, 60999}},
		Lines:   Lines{Services: map[string]int{}, Frontends: map[lb.FrontendKey]int{}},
	}
}

// RestartNeeded names the keys that differ between c, which runs, and next, and
// that are in force only after a restart.
func (c *Config) RestartNeeded(next *Config) []string {
	var keys []string
	for _, s := range []struct {
		key  string
		same bool
	}{
		{"admin.socket", c.Admin.Socket == next.Admin.Socket},
		{"admin.http", c.Admin.HTTP == next.Admin.HTTP},
		{"capture", c.Capture == next.Capture},
		{"source.addresses", slices.Equal(c.Source.Addresses, next.Source.Addresses)},
		{"source.ports", c.Source.Ports == next.Source.Ports},
		{"zone", c.Zone == next.Zone},
	} {
		if !s.same {
			keys = append(keys, s.key)
		}
	}
	return keys
}
