package file

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// full sets every key, each to something that is not its default where what is
// built allows it.
const full = `
admin: {socket: /run/baton/other.sock, http: ""}
capture: anyip
source: {addresses: [10.0.0.5, "fd00::5"], ports: "40000-50000"}
zone: a
defaults:
  drainTimeout: 1m
services:
  - name: web
    frontends: ["tcp://10.96.0.10:80", "tcp://[fd96::10]:80"]
    backends:
      - "10.202.1.2:8080"
      - {address: "[fd02::2]:8080", weight: 3, zone: a, priority: 1, state: drain, maxConnections: 7}
    mode: proxy
    balance: maglev
    affinity: {by: client-ip, timeout: 1h30m}
    health: {probe: none, interval: 2s, timeout: 1s, rise: 2, fall: 3, port: 0, path: /, host: "", status: "200-399", send: "", expect: ""}
    clientAddress: proxy-v2
    acceptProxy: [10.0.0.0/8, 192.0.2.1]
    allow: ["fd00::/8", 10.0.0.0/8]
    deny: [10.9.0.0/16]
    onBackendRemoved: reset
    timeouts: {connect: 500ms, idle: 2h, halfClosed: 30s, udpIdle: 10s, keepalive: 20s, peerLost: 40s}
    offload: {mode: never, path: auto, afterBytes: 1MiB, afterAge: 5s}
    limits: {connections: 1000, perClient: 10, newPerSecond: 50, udpSessions: 20}
    steer: {choose: table, whenAbsent: refuse}
    sctp: {mode: relay, multihoming: front}
`

func TestEveryKey(t *testing.T) {
	got, err := Parse("baton.yaml", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	web := lb.Service{
		Name: "web",
		Frontends: []lb.Frontend{
			{FrontendKey: lb.FrontendKey{Proto: flow.TCP, Address: netip.MustParseAddrPort("10.96.0.10:80")}},
			{FrontendKey: lb.FrontendKey{Proto: flow.TCP, Address: netip.MustParseAddrPort("[fd96::10]:80")}},
		},
		Backends: []lb.Backend{
			{Address: netip.MustParseAddrPort("10.202.1.2:8080"), Weight: 1},
			{
				Address: netip.MustParseAddrPort("[fd02::2]:8080"), Weight: 3, Zone: "a", Priority: 1,
				State: lb.StateDrain, MaxConnections: 7,
			},
		},
		Mode:             flow.ModeProxy,
		Balance:          lb.Maglev,
		Affinity:         lb.Affinity{By: lb.ByClientIP, Timeout: 90 * time.Minute},
		ClientAddress:    lb.ProxyV2,
		AcceptProxy:      []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32")},
		Allow:            []netip.Prefix{netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("10.0.0.0/8")},
		Deny:             []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")},
		OnBackendRemoved: lb.Reset,
		DrainTimeout:     time.Minute,
		Timeouts: lb.Timeouts{
			Connect: 500 * time.Millisecond, Idle: 2 * time.Hour, HalfClosed: 30 * time.Second, UDPIdle: 10 * time.Second,
			KeepAlive: 20 * time.Second, PeerLost: 40 * time.Second,
		},
		Offload: lb.Offload{
			Mode: lb.OffloadNever, Path: lb.OffloadPathAuto, AfterBytes: 1 << 20, AfterAge: 5 * time.Second,
		},
		Limits: lb.Limits{Connections: 1000, PerClient: 10, NewPerSecond: 50, UDPSessions: 20},
		Steer:  lb.Steer{Choose: lb.ChooseTable, WhenAbsent: lb.RefuseAbsent},
		SCTP:   lb.SCTP{Mode: lb.SCTPRelay, Multihoming: lb.Front},
	}
	want := &Config{
		File: "baton.yaml", Admin: Admin{Socket: "/run/baton/other.sock"}, Capture: CaptureAnyIP, Zone: "a",
		Source: SourceAddress{
			Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5")},
			Ports:     PortRange{40000, 50000},
		},
		Services: []lb.Service{web},
		Lines: Lines{
			Services:  map[string]int{"web": 9},
			Frontends: map[lb.FrontendKey]int{web.Frontends[0].FrontendKey: 10, web.Frontends[1].FrontendKey: 10},
		},
		sum: got.sum,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// What is omitted is as the contract says.
func TestOmitted(t *testing.T) {
	for _, file := range []string{"services: []\n", "admin: {}\n", "source: {}\ndefaults: {}\n", "{}\n"} {
		got, err := Parse("f", []byte(file))
		if err != nil {
			t.Fatalf("%q: %v", file, err)
		}
		want := &Config{
			File: "f", Admin: Admin{Socket: "/run/baton/admin.sock", HTTP: "127.0.0.1:10249"}, Capture: "auto",
			Source: SourceAddress{Ports: PortRange{32768, 60999}}, Lines: got.Lines, Services: got.Services, sum: got.sum,
		}
		if !reflect.DeepEqual(got, want) || len(got.Services) != 0 {
			t.Errorf("%q: got %+v", file, got)
		}
	}
	got, err := Parse("f", []byte(one("backends: [\"10.0.0.9:1\", {address: \"10.0.0.9:2\"}]")))
	if err != nil {
		t.Fatal(err)
	}
	want := lb.Default("web")
	want.Frontends = got.Services[0].Frontends
	want.Backends = []lb.Backend{
		{Address: netip.MustParseAddrPort("10.0.0.9:1"), Weight: 1}, {Address: netip.MustParseAddrPort("10.0.0.9:2"), Weight: 1},
	}
	if !reflect.DeepEqual(got.Services[0], want) {
		t.Errorf("got  %+v\nwant %+v", got.Services[0], want)
	}
}

// Each thing that is not built yet is refused by name, at its line.
func TestNotBuilt(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{one("health:", "  probe: sctp"), `5: service web: health.probe: an sctp probe is not built yet in this version`},
		{one("offload: {path: flowtable}"), `4: service web: offload.path: offload path flowtable is not built yet in this version`},
		{one("sctp: {mode: kernel}"), `4: service web: sctp.mode: sctp mode kernel is not built yet in this version`},
		{
			one("backends:", "  - address: \"10.0.0.1:80\"", "    addresses: [\"10.1.0.1\", \"10.2.0.1:80\"]"),
			`6: service web: backends[0].addresses: a backend with several addresses is not built yet in this version`,
		},
		{
			one("backends:", "  - {addresses: [\"10.0.0.1:80\", 10.1.0.1]}"),
			`5: service web: backends[0].addresses: a backend with several addresses is not built yet in this version`,
		},
		{
			"services:\n- name: s\n  frontends:\n  - sctp://10.0.0.1|10.1.0.1:3868\n",
			`4: service s: frontends[0]: an sctp frontend is not built yet in this version`,
		},
		{
			"defaults:\n  balance: random\n  offload: {path: flowtable}\n" + one(),
			`3: defaults: offload.path: offload path flowtable is not built yet in this version`,
		},
	} {
		checkFaults(t, c.file, []string{c.want})
		if _, err := Parse("f", []byte(c.file)); !errors.Is(err, lb.ErrNotBuilt) {
			t.Errorf("%s: errors.Is(err, lb.ErrNotBuilt) is false", c.want)
		}
	}
}

// Whatever the model does not build, the source names: when something is built
// the table above loses a line, and nothing here is forgotten.
func TestOthersAreBuilt(t *testing.T) {
	if _, err := Parse("f", []byte(strings.ReplaceAll(full, "\n", "\r\n"))); errors.Is(err, lb.ErrNotBuilt) {
		t.Error(err)
	}
	for _, c := range Captures {
		if _, err := Parse("f", []byte("capture: "+string(c))); err != nil {
			t.Errorf("capture %s: %v", c, err)
		}
	}
}
