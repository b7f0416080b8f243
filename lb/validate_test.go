package lb

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// valid is a service without a fault.
func valid() *Service {
	s := Default("web")
	s.Frontends = []Frontend{frontendOf("tcp://10.96.0.10:80"), frontendOf("tcp://[fd96::10]:80")}
	s.Backends = []Backend{backendOf("10.0.0.1:8080"), backendOf("10.0.0.2:8080")}
	return &s
}

func frontendOf(s string) Frontend {
	f, err := ParseFrontend(s)
	if err != nil {
		panic(err)
	}
	return f
}

func backendOf(s string) Backend {
	b, err := ParseBackend(s)
	if err != nil {
		panic(err)
	}
	return b
}

func frontendAt(addr string) Frontend {
	return Frontend{FrontendKey: FrontendKey{flow.TCP, netip.MustParseAddrPort(addr)}}
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// faultsOf is the faults of a service as strings, those of what is not built
// apart.
func faultsOf(t *testing.T, s *Service) (faults, notBuilt []string) {
	t.Helper()
	err := s.Validate()
	if err == nil {
		return nil, nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("not joined: %v", err)
	}
	for _, err := range joined.Unwrap() {
		fe, ok := errors.AsType[*FieldError](err)
		if !ok || fe.Field == "" || fe.Problem == "" {
			t.Errorf("no FieldError: %v", err)
		}
		if errors.Is(err, ErrNotBuilt) {
			notBuilt = append(notBuilt, err.Error())
		} else {
			faults = append(faults, err.Error())
		}
	}
	return faults, notBuilt
}

func TestValid(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Service)
	}{
		{"as it is", func(*Service) {}},
		{"no backends", func(s *Service) { s.Backends = nil }},
		{"a backend listed twice", func(s *Service) { s.Backends[1].Address = s.Backends[0].Address }},
		{"weight 0", func(s *Service) { s.Backends[0].Weight = 0 }},
		{"the largest weight", func(s *Service) { s.Backends[0].Weight = MaxWeight }},
		{"draining, down", func(s *Service) { s.Backends[0].State, s.Backends[1].State = StateDrain, StateDown }},
		{"wildcard frontends", func(s *Service) {
			s.Frontends = []Frontend{frontendOf("tcp://0.0.0.0:80"), frontendOf("tcp://[::]:80")}
		}},
		{"one address, two ports", func(s *Service) { s.Frontends[1] = frontendOf("tcp://10.96.0.10:81") }},
		{"affinity", func(s *Service) { s.Affinity = Affinity{By: ByClientIP} }},
		{"every algorithm", func(s *Service) { s.Balance = Maglev }},
		{"PROXY headers", func(s *Service) { s.ClientAddress, s.AcceptProxy = ProxyV2, prefixes("10.0.0.0/8", "fd00::/8") }},
		{"clients", func(s *Service) { s.Allow, s.Deny = prefixes("0.0.0.0/0", "::/0"), prefixes("192.0.2.1/32") }},
		{"limits", func(s *Service) { s.Limits = Limits{1, 2, 3, 4} }},
		{"no drain time", func(s *Service) { s.OnBackendRemoved, s.DrainTimeout = Drain, 0 }},
		{"never offload", func(s *Service) { s.Offload.Mode = OffloadNever }},
		{"a frontend's own", func(s *Service) {
			s.Frontends[0].Subset, s.Frontends[0].ClientAddress, s.Frontends[0].AllowSources = LocalBackends, ProxyV1, prefixes("192.0.2.0/24")
		}},
		{"clients inside", func(s *Service) {
			s.Frontends[0].Subset, s.Frontends[0].SameFamily = LocalBackends, true
			s.Frontends[0].Inside, s.Frontends[0].InsideSubset = prefixes("10.244.0.0/16", "127.0.0.0/8"), NearBackends
		}},
		{"a Kubernetes name", func(s *Service) { s.Name = "default/web:http" }},
		{"the longest name", func(s *Service) { s.Name = strings.Repeat("x", 253) }},
		{"a name with an address in it", func(s *Service) { s.Name = "10.0.0.1" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := valid()
			c.change(s)
			if err := s.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Service)
		want   string // the only fault begins so
	}{
		{"no name", func(s *Service) { s.Name = "" }, "name: is missing"},
		{"long name", func(s *Service) { s.Name = strings.Repeat("x", 254) }, "name: is longer than 253"},
		{"space in the name", func(s *Service) { s.Name = "a b" }, `name: "a b" has a space`},
		{"tab in the name", func(s *Service) { s.Name = "a\tb" }, `name: "a\tb" has a space or a control`},
		{"escape in the name", func(s *Service) { s.Name = "a\x1b[2Jb" }, `name: "a\x1b[2Jb" has`},
		{"C1 control in the name", func(s *Service) { s.Name = "a\u009bb" }, `name: "a\u009bb" has`},
		{"no-break space in the name", func(s *Service) { s.Name = "a\u00a0b" }, `name: "a\u00a0b" has`},
		{"line separator in the name", func(s *Service) { s.Name = "a\u2028b" }, `name: "a\u2028b" has`},
		{"name that is not UTF-8", func(s *Service) { s.Name = "a\xff" }, `name: "a\xff" has`},
		{"name like a backend", func(s *Service) { s.Name = "10.0.0.1:80" }, `name: "10.0.0.1:80" looks like IP:PORT`},
		{"name like a target", func(s *Service) { s.Name = "a/[::1]:80" }, `name: "[::1]:80" looks like IP:PORT`},
		{"name with a slash in front", func(s *Service) { s.Name = "/a" }, `name: "/a" begins or ends with a slash`},
		{"name with a slash at the end", func(s *Service) { s.Name = "a/" }, `name: "a/" begins or ends with a slash`},

		{"no frontends", func(s *Service) { s.Frontends = nil }, "frontends: is empty"},
		{"frontend twice", func(s *Service) { s.Frontends[1] = s.Frontends[0] }, "frontends[1]: tcp://10.96.0.10:80 is listed already as frontends[0]"},
		{"no protocol", func(s *Service) { s.Frontends[0].Proto = 0 }, "frontends[0]: ip-proto-0 is no protocol"},
		{"other protocol", func(s *Service) { s.Frontends[1].Proto = 1 }, "frontends[1]: ip-proto-1 is no protocol"},
		{"no frontend address", func(s *Service) { s.Frontends[1].Address = netip.AddrPort{} }, "frontends[1]: invalid AddrPort is not IP:PORT"},
		{"frontend port 0", func(s *Service) { s.Frontends[1] = frontendAt("10.0.0.1:0") }, "frontends[1]: 10.0.0.1:0 is not IP:PORT"},
		{"multicast frontend", func(s *Service) { s.Frontends[1] = frontendAt("[ff02::1]:80") }, "frontends[1]: ff02::1 is a multicast"},
		{"broadcast frontend", func(s *Service) { s.Frontends[1] = frontendAt("255.255.255.255:80") }, "frontends[1]: 255.255.255.255 is a multicast or broadcast"},
		{"mapped frontend", func(s *Service) { s.Frontends[1] = frontendAt("[::ffff:10.0.0.1]:80") }, "frontends[1]: ::ffff:10.0.0.1 is an IPv4 address in IPv6 clothes: write 10.0.0.1"},
		{"frontend with a zone", func(s *Service) { s.Frontends[1] = frontendAt("[fe80::1%eth0]:80") }, "frontends[1]: fe80::1%eth0 has a zone"},
		{"several addresses for tcp", func(s *Service) { s.Frontends[1].More = []netip.Addr{netip.MustParseAddr("fd97::1")} }, "frontends[1]: several addresses are for sctp only"},
		{"subset", func(s *Service) { s.Frontends[0].Subset = "upstairs" }, `frontends[0].subset: "upstairs" is unknown`},
		{"inside subset", func(s *Service) {
			s.Frontends[0].Inside, s.Frontends[0].InsideSubset = prefixes("10.0.0.0/8"), "upstairs"
		}, `frontends[0].insideSubset: "upstairs" is unknown`},
		{"nobody inside", func(s *Service) { s.Frontends[0].InsideSubset = NearBackends }, "frontends[0].insideSubset: is for nobody"},
		{"inside", func(s *Service) { s.Frontends[1].Inside = prefixes("::ffff:10.0.0.0/104") }, "frontends[1].inside[0]: ::ffff:10.0.0.0/104 is an IPv4 prefix"},
		{"whenNone", func(s *Service) { s.Frontends[0].WhenNone = "wait" }, `frontends[0].whenNone: "wait" is unknown`},
		{"a frontend's client address", func(s *Service) { s.Frontends[0].ClientAddress = "real" }, `frontends[0].clientAddress: "real" is unknown: use masked`},
		{"a frontend's sources", func(s *Service) { s.Frontends[1].AllowSources = []netip.Prefix{{}} }, "frontends[1].allowSources[0]: is not IP/BITS"},

		{"no backend address", func(s *Service) { s.Backends[1].Address = netip.AddrPort{} }, "backends[1]: invalid AddrPort is not IP:PORT"},
		{"backend port 0", func(s *Service) { s.Backends[1].Address = netip.MustParseAddrPort("10.0.0.1:0") }, "backends[1]: 10.0.0.1:0 is not IP:PORT"},
		{"multicast backend", func(s *Service) { s.Backends[1] = backendOf("224.0.0.1:80") }, "backends[1]: 224.0.0.1 is a multicast"},
		{"broadcast backend", func(s *Service) { s.Backends[1] = backendOf("255.255.255.255:80") }, "backends[1]: 255.255.255.255 is a multicast or broadcast"},
		{"unspecified backend", func(s *Service) { s.Backends[1] = backendOf("0.0.0.0:80") }, "backends[1]: 0.0.0.0 is no address to connect to"},
		{"unspecified IPv6 backend", func(s *Service) { s.Backends[1] = backendOf("[::]:80") }, "backends[1]: :: is no address to connect to"},
		{"mapped backend", func(s *Service) { s.Backends[1].Address = netip.MustParseAddrPort("[::ffff:10.0.0.1]:80") }, "backends[1]: ::ffff:10.0.0.1 is an IPv4 address in IPv6 clothes"},
		{"backend with a zone", func(s *Service) { s.Backends[1] = backendOf("[fe80::1%eth0]:80") }, "backends[1]: fe80::1%eth0 has a zone"},
		{"maxConnections", func(s *Service) { s.Backends[1].MaxConnections = -1 }, "backends[1].maxConnections: is negative"},
		{"backend state", func(s *Service) { s.Backends[1].State = "ready" }, `backends[1].state: "ready" is unknown: use ready, drain or down`},

		{"acceptProxy", func(s *Service) { s.AcceptProxy = []netip.Prefix{{}} }, "acceptProxy[0]: is not IP/BITS"},
		{"allow", func(s *Service) { s.Allow = append(prefixes("10.0.0.0/8"), netip.Prefix{}) }, "allow[1]: is not IP/BITS"},
		{"deny mapped", func(s *Service) { s.Deny = prefixes("::ffff:10.0.0.0/104") }, "deny[0]: ::ffff:10.0.0.0/104 is an IPv4 prefix in IPv6 clothes"},

		{"mode", func(s *Service) { s.Mode = "fast" }, `mode: "fast" is unknown: use proxy, steer`},
		{"no mode", func(s *Service) { s.Mode = "" }, `mode: "" is unknown`},
		{"balance", func(s *Service) { s.Balance = "rr" }, `balance: "rr" is unknown: use round-robin, least-connections, random, source-hash, maglev`},
		{"proxy-v1 over UDP", func(s *Service) { s.ClientAddress, s.Frontends[0].Proto = ProxyV1, flow.UDP }, `frontends[0]: clientAddress proxy-v1 is for tcp only`},
		{"clientAddress", func(s *Service) { s.ClientAddress = "" }, `clientAddress: "" is unknown`},
		{"onBackendRemoved", func(s *Service) { s.OnBackendRemoved = "kill" }, `onBackendRemoved: "kill" is unknown`},
		{"offload.mode", func(s *Service) { s.Offload.Mode = "on" }, `offload.mode: "on" is unknown`},
		{"steer.choose", func(s *Service) { s.Steer.Choose = "best" }, `steer.choose: "best" is unknown`},
		{"steer.whenAbsent", func(s *Service) { s.Steer.WhenAbsent = "stop" }, `steer.whenAbsent: "stop" is unknown`},
		{"sctp.mode", func(s *Service) { s.SCTP.Mode = "fast" }, `sctp.mode: "fast" is unknown`},
		{"sctp.multihoming", func(s *Service) { s.SCTP.Multihoming = "all" }, `sctp.multihoming: "all" is unknown`},
		{"affinity.by", func(s *Service) { s.Affinity.By = "cookie" }, `affinity.by: "cookie" is unknown: use client-ip`},

		{"timeouts.connect", func(s *Service) { s.Timeouts.Connect = 0 }, "timeouts.connect: 0s is not longer than 0"},
		{"timeouts.idle", func(s *Service) { s.Timeouts.Idle = -time.Second }, "timeouts.idle: -1s is not longer than 0"},
		{"timeouts.halfClosed", func(s *Service) { s.Timeouts.HalfClosed = 0 }, "timeouts.halfClosed:"},
		{"timeouts.udpIdle", func(s *Service) { s.Timeouts.UDPIdle = 0 }, "timeouts.udpIdle:"},
		{"timeouts.keepalive", func(s *Service) { s.Timeouts.KeepAlive = 0 }, "timeouts.keepalive:"},
		{"timeouts.peerLost", func(s *Service) { s.Timeouts.PeerLost = 0 }, "timeouts.peerLost:"},
		{"drainTimeout", func(s *Service) { s.DrainTimeout = -1 }, "drainTimeout: is negative"},
		{"affinity.timeout", func(s *Service) { s.Affinity = Affinity{ByClientIP, -1} }, "affinity.timeout: is negative"},
		{"offload.afterBytes", func(s *Service) { s.Offload.AfterBytes = -1 }, "offload.afterBytes: is negative"},
		{"offload.afterAge", func(s *Service) { s.Offload.AfterAge = -1 }, "offload.afterAge: is negative"},
		{"limits.connections", func(s *Service) { s.Limits.Connections = -1 }, "limits.connections: is negative: 0 is no limit"},
		{"limits.perClient", func(s *Service) { s.Limits.PerClient = -1 }, "limits.perClient: is negative"},
		{"limits.newPerSecond", func(s *Service) { s.Limits.NewPerSecond = -1 }, "limits.newPerSecond: is negative"},
		{"limits.udpSessions", func(s *Service) { s.Limits.UDPSessions = -1 }, "limits.udpSessions: is negative"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := valid()
			c.change(s)
			faults, notBuilt := faultsOf(t, s)
			if len(faults) != 1 || !strings.HasPrefix(faults[0], c.want) || len(notBuilt) > 0 {
				t.Errorf("faults %q, not built %q; want %q", faults, notBuilt, c.want)
			}
		})
	}
}

// What is wrong beside something that is not built, which is reported too.
func TestFaultsOfWhatIsNotBuilt(t *testing.T) {
	multihomed := func(more ...string) func(*Service) {
		return func(s *Service) {
			fe := frontendOf("sctp://10.0.0.1:3868")
			for _, a := range more {
				fe.More = append(fe.More, netip.MustParseAddr(a))
			}
			s.Frontends = []Frontend{fe}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*Service)
		want   []string
	}{
		{"multihomed", multihomed("10.1.0.1", "fd96::1"), nil},
		{"the same address again", multihomed("10.0.0.1"), []string{"frontends[0]: sctp://10.0.0.1:3868 is listed already as frontends[0]"}},
		{"further multicast address", multihomed("224.0.0.1"), []string{"frontends[0]: 224.0.0.1 is a multicast or broadcast address"}},
		{"further address of another frontend", func(s *Service) {
			multihomed("10.1.0.1")(s)
			s.Frontends = append(s.Frontends, frontendOf("sctp://10.1.0.1:3868"))
		}, []string{"frontends[1]: sctp://10.1.0.1:3868 is listed already as frontends[0]"}},
		{"further unspecified backend address", func(s *Service) { s.Backends[0].More = []netip.Addr{netip.IPv6Unspecified()} },
			[]string{"backends[0]: :: is no address to connect to"}},
		{"offload.path", func(s *Service) { s.Offload.Path = "xdp" }, []string{`offload.path: "xdp" is unknown`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := valid()
			c.change(s)
			faults, _ := faultsOf(t, s)
			if !slices.EqualFunc(faults, c.want, strings.HasPrefix) {
				t.Errorf("%q, want %q", faults, c.want)
			}
		})
	}
}

// All faults are told at once.
func TestAllFaultsTogether(t *testing.T) {
	s := &Service{}
	faults, _ := faultsOf(t, s)
	for _, field := range []string{"name", "frontends", "mode", "balance", "clientAddress", "timeouts.connect", "timeouts.idle"} {
		if !slices.ContainsFunc(faults, func(f string) bool { return strings.HasPrefix(f, field+": ") }) {
			t.Errorf("nothing about %s in %q", field, faults)
		}
	}
}

func TestFieldError(t *testing.T) {
	s := valid()
	s.Timeouts.Idle = 0
	fe, ok := errors.AsType[*FieldError](s.Validate())
	if !ok || fe.Field != "timeouts.idle" || fe.Problem != "0s is not longer than 0" {
		t.Errorf("%+v", fe)
	}
}

func BenchmarkValidate(b *testing.B) {
	s := valid()
	for i := range 23 {
		be := backendOf("10.0.1.0:80")
		be.Address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}), 80)
		s.Backends = append(s.Backends, be)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Validate(); err != nil {
			b.Fatal(err)
		}
	}
}
