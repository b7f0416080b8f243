package store

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/baton-lb/baton/lb"
)

// Every field of the model must count: each is changed in turn, found by
// reflection, so that a new one cannot be forgotten.
func TestEqualSeesEveryField(t *testing.T) {
	base := func() *lb.Service {
		s := service("web", "tcp://10.0.0.1:80", "10.1.0.1:80", "10.1.0.2:80")
		p := netip.MustParsePrefix("10.0.0.0/8")
		s.Allow, s.Deny, s.AcceptProxy = []netip.Prefix{p}, []netip.Prefix{p}, []netip.Prefix{p}
		s.Frontends[0].More = []netip.Addr{netip.MustParseAddr("10.0.0.2")}
		s.Frontends[0].AllowSources, s.Frontends[0].Inside, s.Frontends[0].KeepSources = []netip.Prefix{p}, []netip.Prefix{p}, []netip.Prefix{p}
		s.Backends[1].More = []netip.Addr{netip.MustParseAddr("10.1.0.3")}
		return &s
	}
	if !equal(base(), base()) {
		t.Fatal("equal services differ")
	}
	total := len(leaves(reflect.ValueOf(base()).Elem(), "Service"))
	for i := range total {
		s := base()
		leaf := leaves(reflect.ValueOf(s).Elem(), "Service")[i]
		leaf.change(t)
		if equal(base(), s) {
			t.Errorf("a change of %s goes unseen", leaf.path)
		}
	}
	longer := base()
	longer.Backends = longer.Backends[:1]
	if equal(base(), longer) {
		t.Error("a missing backend goes unseen")
	}
}

type leaf struct {
	path string
	v    reflect.Value
}

// leaves lists what can be changed in v: down to plain values and addresses,
// the last element of each slice.
func leaves(v reflect.Value, path string) []leaf {
	switch v.Interface().(type) {
	case netip.Addr, netip.AddrPort, netip.Prefix:
		return []leaf{{path, v}}
	}
	switch v.Kind() {
	case reflect.Struct:
		var all []leaf
		for i := range v.NumField() {
			all = append(all, leaves(v.Field(i), path+"."+v.Type().Field(i).Name)...)
		}
		return all
	case reflect.Slice:
		return leaves(v.Index(v.Len()-1), path+"[]")
	}
	return []leaf{{path, v}}
}

func (l leaf) change(t *testing.T) {
	switch l.v.Interface().(type) {
	case netip.Addr:
		l.v.Set(reflect.ValueOf(netip.MustParseAddr("192.0.2.1")))
		return
	case netip.AddrPort:
		l.v.Set(reflect.ValueOf(netip.MustParseAddrPort("192.0.2.1:1")))
		return
	case netip.Prefix:
		l.v.Set(reflect.ValueOf(netip.MustParsePrefix("192.0.2.0/24")))
		return
	}
	switch {
	case l.v.Kind() == reflect.String:
		l.v.SetString("changed")
	case l.v.Kind() == reflect.Bool:
		l.v.SetBool(!l.v.Bool())
	case l.v.CanInt():
		l.v.SetInt(l.v.Int() + int64(time.Millisecond))
	case l.v.CanUint():
		l.v.SetUint(l.v.Uint() + 1)
	default:
		t.Fatalf("%s: a %s cannot be changed here", l.path, l.v.Kind())
	}
}
