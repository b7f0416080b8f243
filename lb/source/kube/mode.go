package kube

import (
	"cmp"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// Mode is how Services are carried that do not say it themselves: a word of --mode, and of a Service's annotation.
type Mode string

// The words.
const (
	ModeProxy Mode = "proxy"
	ModeSteer Mode = "steer"
	ModeAuto  Mode = "auto" // steered where that can be, proxied elsewhere
)

// Modes lists every Mode.
var Modes = []Mode{ModeAuto, ModeSteer, ModeProxy}

// decide sets a service's mode, when everything else is known of it. One that was to be steered and cannot be is proxied: with
// ModeAuto that is as it should be, with ModeSteer said to be a fault of its own.
func (m Mode) decide(s *lb.Service) {
	s.Mode = flow.ModeProxy
	if m != ModeSteer && m != ModeAuto {
		return
	}
	if s.NotSteerable() != "" {
		s.Unsteered = true
		return
	}
	s.Mode = flow.ModeSteer
}

// modeOf is how a port is carried: as its Service says, else as all are.
func (t *Translator) modeOf(p *port) Mode {
	return cmp.Or(p.service.policies.mode, t.options.Mode, ModeProxy)
}
