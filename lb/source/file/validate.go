package file

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// fieldErrors takes what lb.Service.Validate joined apart.
func fieldErrors(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return nil
}

// validate asks the model about a service and finds the lines of its answers,
// in the service or in the defaults.
func (d *decoder) validate(s *service, n, defaults *node) {
	said := map[string]bool{}
	for _, err := range fieldErrors(s.Validate()) {
		field, problem := split(err)
		if d.saidAlready(field) || errors.Is(err, lb.ErrNotBuilt) && said[field] {
			continue // an unknown word is not also one that is not built yet
		}
		said[field] = true
		line, all := locate(n, field)
		if !all && defaults != nil {
			if l, ok := locate(defaults, field); ok {
				d.reportDefault(l, field, problem, err)
				continue
			}
		}
		d.report(line, field, problem, err)
	}
}

// validateDefaults asks the model about the defaults alone, so that a wrong word
// shows although every service overrides it.
func (d *decoder) validateDefaults(s service, defaults *node) {
	s.Name = "defaults"
	s.Frontends = []lb.Frontend{{FrontendKey: lb.FrontendKey{
		Proto: flow.TCP, Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), 1),
	}}}
	for _, err := range fieldErrors(s.Validate()) {
		field, problem := split(err)
		if line, ok := locate(defaults, field); ok {
			d.report(line, field, problem, err)
		}
	}
}

func (d *decoder) reportDefault(line int, field, problem string, err error) {
	scope := d.scope
	d.scope = "defaults"
	d.report(line, field, problem, err)
	d.scope = scope
}

func split(err error) (field, problem string) {
	if fe, ok := errors.AsType[*lb.FieldError](err); ok {
		return fe.Field, fe.Problem
	}
	return "", err.Error()
}

// saidAlready reports whether the decoder found the value at the path wrong, so
// that the model has judged a zero value instead.
func (d *decoder) saidAlready(path string) bool {
	if d.wrong[path] {
		return true
	}
	for at := range d.wrong {
		if strings.HasPrefix(at, path+".address") {
			return true
		}
	}
	return false
}
