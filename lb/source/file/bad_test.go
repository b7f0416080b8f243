package file

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// one is a service with the given further lines, which begin at line 4.
func one(more ...string) string {
	return "services:\n  - name: web\n    frontends: [\"tcp://10.0.0.1:80\"]\n    " + strings.Join(more, "\n    ") + "\n"
}

// lines joins the lines of a file.
func lines(l ...string) string { return strings.Join(l, "\n") + "\n" }

var badFiles = []struct {
	name string
	file string
	want []string // "LINE: message", in order
}{
	// The file as a whole.
	{"empty", "", []string{`1: the file is empty: it needs at least "services: []"`}},
	{"only a comment", "# nothing\n", []string{`1: the file is empty: it needs at least "services: []"`}},
	{"null", "~\n", []string{`1: the file is empty: it needs at least "services: []"`}},
	{"list at the top", "- a\n", []string{"1: the file is a list, not a map with services: and the other keys"}},
	{"text at the top", "hello\n", []string{"1: the file is text, not a map with services: and the other keys"}},
	{"two documents", "services: []\n---\nservices: []\n", []string{"2: a second document starts here: the file must be one"}},
	{"empty second document", "services: []\n---\n", []string{"2: a second document starts here: the file must be one"}},
	{"broken second document", "services: []\n---\na: [\n", []string{"3: not YAML: did not find expected node content"}},
	{"tab", "services:\n\t- name: web\n", []string{"2: not YAML: a tab cannot indent, use spaces"}},
	{"unclosed quote", "zone: a\nservices:\n  - name: \"web\n    frontends: []\n", []string{"3: not YAML: found unexpected end of stream"}},
	{"unclosed bracket", "services:\n  - name: web\n    frontends: [\n  - name: b\n", []string{"3: not YAML: did not find expected node content"}},
	{"dedent", "services:\n  - name: web\n   frontends: []\n", []string{"3: not YAML: did not find expected '-' indicator"}},
	{"colon in a plain word", "zone: a: b\n", []string{"1: not YAML: mapping values are not allowed in this context"}},
	{"quote after a quote", "zone: 'it's'\nservices: []\n", []string{"1: not YAML: did not find expected key"}},
	{"unknown anchor", "zone: a\nservices: *none\n", []string{"2: not YAML: unknown anchor 'none' referenced"}},
	{"not UTF-8", "zone: a\nsource: \xff\n", []string{"2: not YAML: invalid leading UTF-8 octet"}},
	{"control character", "zone: a\n\n\x01\n", []string{"3: not YAML: control characters are not allowed"}},
	{"unknown key", "zone: a\nservicse: []\n", []string{`2: unknown key "servicse": did you mean "services"?`}},
	{"unknown key, nothing near", "frobnicate: 1\n", []string{`1: unknown key "frobnicate"`}},
	{"key in another spelling", one(
		"on_backend_removed: keep",
	), []string{`4: service web: unknown key "on_backend_removed": did you mean "onBackendRemoved"?`}},
	{"duplicate key", "zone: a\nservices: []\nzone: b\n", []string{"3: zone: is set already at line 1"}},
	{"duplicate key, thrice", "zone: a\nzone: b\nzone: c\n", []string{
		"2: zone: is set already at line 1",
		"3: zone: is set already at line 2",
	}},
	{"merge key", "services:\n  - &a\n    name: web\n    frontends: [\"tcp://10.0.0.1:80\"]\n  - <<: *a\n", []string{
		"5: services[1]: the merge key << is not supported: put what services share under defaults",
		"5: services[1]: name: is missing",
		"5: services[1]: frontends: is empty: a service needs at least one",
	}},
	{"map as a key", "{a: b}: c\n", []string{"1: a key is a map, not a plain word"}},
	{"number as a key", "1: c\n", []string{`1: unknown key "1"`}},
	{"no value", "services:\nzone:\n", []string{
		"1: services: has no value",
		"2: zone: has no value",
	}},

	// Settings.
	{"admin", "admin:\n  socket: \"\"\n  http: \"10249\"\n", []string{
		"2: admin.socket: is empty: the socket cannot be off",
		`3: admin.http: "10249" is not IP:PORT: write "127.0.0.1:10249", ":10249" for every address, or "" for off`,
	}},
	{"admin socket", "admin: {socket: \"@baton\"}\n", []string{`1: admin.socket: "@baton" is not a path: an abstract socket has no permissions`}},
	{"admin socket too long", "admin: {socket: /" + strings.Repeat("x", 107) + "}\n", []string{
		"1: admin.socket: is longer than 107 bytes, the most that a unix socket may have",
	}},
	{"admin as text", "admin: off\n", []string{"1: admin: is text, not a map of keys and values"}},
	{"admin http port", "admin: {http: \"127.0.0.1:0\"}\n", []string{
		`1: admin.http: "127.0.0.1:0" is not IP:PORT: write "127.0.0.1:10249", ":10249" for every address, or "" for off`,
	}},
	{"admin http host", "admin: {http: \"example.org:80\"}\n", []string{
		`1: admin.http: "example.org:80" is not IP:PORT: write "127.0.0.1:10249", ":10249" for every address, or "" for off`,
	}},
	{"capture", "capture: tproxy\n", []string{`1: capture: "tproxy" is unknown: use auto, sklookup, anyip or bind`}},
	{"capture type", "capture: [auto]\n", []string{"1: capture: is a list, not text"}},
	{"source", lines(
		"source:", "  addresses:", "    - 10.0.0.1", "    - 10.0.0.1:80", "    - 0.0.0.0", "    - fe80::1%eth0",
		"    - 10.0.0.1", "    - 5", "  ports: 60999-32768",
	), []string{
		`4: source.addresses[1]: "10.0.0.1:80" is not an IP address`,
		"5: source.addresses[2]: 0.0.0.0 is no address to connect from",
		"6: source.addresses[3]: fe80::1%eth0 has a zone, which is not supported",
		"7: source.addresses[4]: 10.0.0.1 is listed already at line 3",
		"8: source.addresses[5]: is a number, not text: put it in quotes",
		"9: source.ports: 60999-32768 begins above its end: 32768-60999 was meant",
	}},
	{"source ports", "source: {ports: \"0-70000\"}\n", []string{
		`1: source.ports: "0-70000" is not a range of ports: write LOW-HIGH, between 1 and 65535, as 32768-60999`,
	}},
	{"source port", "source: {ports: 32768}\n", []string{"1: source.ports: is a number, not text: put it in quotes"}},
	{"zone type", "zone: 7\n", []string{"1: zone: is a number, not text: put it in quotes"}},

	// Services.
	{"services as a map", "services: {web: {}}\n", []string{`1: services: is a map, not a list: write [a, b] or one "- a" a line`}},
	{"service as text", lines(
		"services:", "  - web",
	), []string{"2: services[0]: is text, not a service: write its keys, as {name: …, frontends: …, backends: …}"}},
	{"service without a name", "services:\n  - frontends: [\"tcp://10.0.0.1:80\"]\n", []string{"2: services[0]: name: is missing"}},
	{"name as a number", "services:\n  - name: 80\n    frontends: [\"tcp://10.0.0.1:80\"]\n", []string{
		"2: services[0]: name: is a number, not text: put it in quotes",
	}},
	{"name with a space", "services:\n  - name: my web\n    frontends: [\"tcp://10.0.0.1:80\"]\n", []string{
		`2: service my web: name: "my web" has a space or a control character in it`,
	}},
	{"no frontends", "services:\n  - name: web\n", []string{"2: service web: frontends: is empty: a service needs at least one"}},
	{"empty frontends", "services:\n  - name: web\n    frontends: []\n", []string{"3: service web: frontends: is empty: a service needs at least one"}},
	{"frontends as text", "services:\n  - name: web\n    frontends: tcp://10.0.0.1:80\n", []string{
		`3: service web: frontends: is text, not a list: write [a, b] or one "- a" a line`,
	}},
	{"frontends", lines(
		"services:", "  - name: web", "    frontends:", "      - 10.0.0.1:80", "      - http://10.0.0.1:80",
		"      - tcp://10.0.0.1", "      - tcp://224.0.0.1:80", "      - tcp://web:80", "      - tcp://10.0.0.1:0",
		"      - {}",
	), []string{
		`4: service web: frontends[0]: frontend "10.0.0.1:80": want PROTOCOL://IP:PORT, as tcp://10.96.0.10:80 or tcp://[fd96::10]:80`,
		`5: service web: frontends[1]: frontend "http://10.0.0.1:80": unknown protocol "http": use tcp, udp or sctp`,
		`6: service web: frontends[2]: frontend "tcp://10.0.0.1": "10.0.0.1" is not IP:PORT; want PROTOCOL://IP:PORT, as tcp://10.96.0.10:80 or tcp://[fd96::10]:80`,
		"7: service web: frontends[3]: 224.0.0.1 is a multicast or broadcast address",
		`8: service web: frontends[4]: frontend "tcp://web:80": "web:80" is not IP:PORT; want PROTOCOL://IP:PORT, as tcp://10.96.0.10:80 or tcp://[fd96::10]:80`,
		`9: service web: frontends[5]: frontend "tcp://10.0.0.1:0": "10.0.0.1:0" has port 0; want PROTOCOL://IP:PORT, as tcp://10.96.0.10:80 or tcp://[fd96::10]:80`,
		"10: service web: frontends[6]: is a map, not text",
	}},
	{"same frontend twice", "services:\n  - name: web\n    frontends:\n      - tcp://10.0.0.1:80\n      - tcp://10.0.0.1:80\n", []string{
		"5: service web: frontends[1]: tcp://10.0.0.1:80 is listed already as frontends[0]",
	}},
	{"same name", "services:\n  - name: web\n    frontends: [\"tcp://10.0.0.1:80\"]\n  - name: web\n    frontends: [\"tcp://10.0.0.2:80\"]\n", []string{
		"4: service web is defined already at line 2",
	}},
	{"same frontend in two services", lines(
		"services:", "  - name: a", "    frontends:", "      - tcp://10.0.0.1:80", "      - tcp://10.0.0.2:80", "  - name: b",
		"    frontends:", "      - tcp://10.0.0.3:80", "      - tcp://10.0.0.2:80",
	), []string{
		"9: frontend tcp://10.0.0.2:80 of service b is already listed by service a at line 5",
	}},
	{"backends", one(
		"backends:", "  - 10.0.0.1", "  - \"10.0.0.1:0\"", "  - {weight: 1}", "  - {address: \"10.0.0.1:80\", wieght: 2}",
		"  - 7", "  - \"0.0.0.0:80\"",
	), []string{
		`5: service web: backends[0]: backend "10.0.0.1" is not IP:PORT; want IP:PORT, as 10.202.1.2:8080 or [fd02::2]:8080`,
		`6: service web: backends[1]: backend "10.0.0.1:0" has port 0; want IP:PORT, as 10.202.1.2:8080 or [fd02::2]:8080`,
		"7: service web: backends[2]: address is missing",
		`8: service web: backends[3]: unknown key "wieght": did you mean "weight"?`,
		"9: service web: backends[4]: is a number, not text: put it in quotes",
		"10: service web: backends[5]: 0.0.0.0 is no address to connect to",
	}},
	{"backend keys", one(
		"backends:", "  - address: \"10.0.0.1:80\"", "    weight: 65536", "    priority: -1", "    state: dead",
		"    maxConnections: 1.5", "    zone: 3",
	), []string{
		"6: service web: backends[0].weight: 65536 is out of range: use 0 to 65535",
		"7: service web: backends[0].priority: -1 is out of range: use 0 to 65535",
		`8: service web: backends[0].state: "dead" is unknown: use ready, drain or down`,
		"9: service web: backends[0].maxConnections: is a fraction, not a whole number",
		"10: service web: backends[0].zone: is a number, not text: put it in quotes",
	}},
	{"backend state empty", one("backends: [{address: \"10.0.0.1:80\", state: \"\"}]"), []string{"4: service web: backends[0].state: is empty"}},
	{"backend address wrong and state wrong", one("backends:", "  - {state: dead,", "     address: x}"), []string{
		`5: service web: backends[0].state: "dead" is unknown: use ready, drain or down`,
		`6: service web: backends[0].address: backend "x" is not IP:PORT; want IP:PORT, as 10.202.1.2:8080 or [fd02::2]:8080`,
	}},
	{"backend addresses", one(
		"backends:", "  - addresses: []", "  - addresses: [10.0.0.1]", "  - addresses: [\"10.0.0.1:80\", \"10.0.0.2:81\"]",
	), []string{
		"5: service web: backends[0].addresses: is empty",
		`6: service web: backends[1].addresses[0]: backend "10.0.0.1" is not IP:PORT; want IP:PORT, as 10.202.1.2:8080 or [fd02::2]:8080`,
		"7: service web: backends[2].addresses[1]: port 81 is not that of the first address, 80",
	}},
	{"numbers", one("limits:", "  connections: \"5\"", "  perClient: 0x10", "  newPerSecond: 010", "  udpSessions: -1"), []string{
		"5: service web: limits.connections: is text, not a whole number: write it without quotes",
		`6: service web: limits.perClient: "0x10" is not a plain decimal number`,
		`7: service web: limits.newPerSecond: "010" is not a plain decimal number`,
		"8: service web: limits.udpSessions: -1 is out of range: use 0 to 2147483647",
	}},
	{"huge number", one("limits: {connections: 99999999999999999999}"), []string{
		"4: service web: limits.connections: 99999999999999999999 is out of range: use 0 to 2147483647",
	}},
	{"words", one(
		"mode: fast", "balance: rr", "clientAddress: real", "onBackendRemoved: kill", "offload: {mode: on, path: xdp}",
		"steer: {choose: best, whenAbsent: stop}", "sctp: {mode: fast, multihoming: all}",
	), []string{
		`4: service web: mode: "fast" is unknown: use proxy, steer`,
		`5: service web: balance: "rr" is unknown: use round-robin, least-connections, random, source-hash, maglev`,
		`6: service web: clientAddress: "real" is unknown: use masked, transparent, proxy-v1, proxy-v2`,
		`7: service web: onBackendRemoved: "kill" is unknown: use keep, drain, reset`,
		`8: service web: offload.mode: "on" is unknown: use auto, never, always`,
		`8: service web: offload.path: "xdp" is unknown: use auto, bpf, flowtable`,
		`9: service web: steer.choose: "best" is unknown: use auto, ticket, table, packet`,
		`9: service web: steer.whenAbsent: "stop" is unknown: use lastKnown, refuse`,
		`10: service web: sctp.mode: "fast" is unknown: use relay, kernel`,
		`10: service web: sctp.multihoming: "all" is unknown: use strip, front, paired, reject`,
	}},
	{"empty word", one("balance: \"\""), []string{"4: service web: balance: is empty"}},
	{"durations", one("drainTimeout: 30", "timeouts:", "  connect: 1.5", "  idle: 1d", "  halfClosed: -1s", "  udpIdle: soon"), []string{
		"4: service web: drainTimeout: 30 has no unit: write 30s for seconds",
		"6: service web: timeouts.connect: 1.5 has no unit: write 1.5s for seconds",
		`7: service web: timeouts.idle: "1d" is not a duration: write a number and its unit (h, m, s, ms), as 3h, 1m30s or 500ms; a day is 24h`,
		"8: service web: timeouts.halfClosed: -1s is negative",
		`9: service web: timeouts.udpIdle: "soon" is not a duration: write a number and its unit (h, m, s, ms), as 3h, 1m30s or 500ms`,
	}},
	{"zero timeouts", one("timeouts:", "  connect: 0", "  idle: 0s"), []string{
		"5: service web: timeouts.connect: 0s is not longer than 0",
		"6: service web: timeouts.idle: 0s is not longer than 0",
	}},
	{"sizes", one(
		"offload: {afterBytes: 64K}",
	), []string{`4: service web: offload.afterBytes: "64K" is not a size: write bytes as 65536, 64KiB, 1MiB or 10MB`}},
	{"size as a fraction", one("offload: {afterBytes: 1.5}"), []string{"4: service web: offload.afterBytes: is a fraction, not a size in bytes"}},
	{"size too large", one("offload: {afterBytes: 9999999TiB}"), []string{"4: service web: offload.afterBytes: 9999999TiB is larger than any size"}},
	{"negative size", one("offload: {afterBytes: -1}"), []string{
		`4: service web: offload.afterBytes: "-1" is not a size: write bytes as 65536, 64KiB, 1MiB or 10MB`,
	}},
	{"prefixes", one("allow:", "  - 10.0.0.0/33", "  - 10.0.0.1/8", "  - \"::ffff:10.0.0.0/104\"", "  - host", "  - 5"), []string{
		`5: service web: allow[0]: "10.0.0.0/33" is not a CIDR: write 10.0.0.0/8, fd00::/8 or an address`,
		"6: service web: allow[1]: 10.0.0.1/8 has bits beyond its length: 10.0.0.0/8 or 10.0.0.1/32 was meant",
		`7: service web: allow[2]: "::ffff:10.0.0.0/104" is IPv4 in IPv6 form: write it as IPv4`,
		`8: service web: allow[3]: "host" is not a CIDR: write 10.0.0.0/8, fd00::/8 or an address`,
		"9: service web: allow[4]: is a number, not text: put it in quotes",
	}},
	{"prefixes as text", one("deny: 10.0.0.0/8"), []string{`4: service web: deny: is text, not a list: write [a, b] or one "- a" a line`}},
	{"affinity", one("affinity: {by: cookie, timeout: 0s}"), []string{
		"4: service web: affinity.timeout: 0s is not longer than 0",
		`4: service web: affinity.by: "cookie" is unknown: use client-ip`,
	}},
	{"affinity as text", one("affinity: client-ip"), []string{"4: service web: affinity: is text, not a map of keys and values"}},
	{"health", one(
		"health:", "  probe: icmp", "  interval: 0s", "  timeout: never", "  rise: 0", "  fall: x", "  port: 70000",
		"  path: index", "  host: a b", "  status: 200-", "  send: 1",
	), []string{
		`5: service web: health.probe: "icmp" is unknown: use tcp, http, udp, sctp`,
		"6: service web: health.interval: 0s is not longer than 0",
		`7: service web: health.timeout: "never" is not a duration: write a number and its unit (h, m, s, ms), as 3h, 1m30s or 500ms`,
		"8: service web: health.rise: 0 is out of range: use 1 to 2147483647",
		"9: service web: health.fall: is text, not a whole number",
		"10: service web: health.port: 70000 is out of range: use 0 to 65535",
		`11: service web: health.path: "index" does not begin with /`,
		`12: service web: health.host: "a b" has a space or a control character in it`,
		`13: service web: health.status: "200-" is not a list of HTTP status codes: write 200-399 or 200,204`,
		"14: service web: health.send: is a number, not text: put it in quotes",
	}},
	{"health status", one("health:", "  probe: none", "  status: 399-200"), []string{"6: service web: health.status: 399-200 begins above its end"}},
	{"health status code", one("health: {probe: none, status: 99}"), []string{
		`4: service web: health.status: "99" is not a list of HTTP status codes: write 200-399 or 200,204`,
	}},

	// Defaults.
	{"defaults with a name", lines(
		"defaults:", "  name: web", "  balance: maglev",
	), []string{"2: defaults: name: is not for defaults: each service has its own"}},
	{"defaults wrong, said once", "defaults:\n  balance: rr\n" + one() + "  - name: b\n    frontends: [\"tcp://10.0.0.2:80\"]\n", []string{
		`2: defaults: balance: "rr" is unknown: use round-robin, least-connections, random, source-hash, maglev`,
	}},
	{"defaults wrong though overridden", "defaults:\n  balance: rr\n" + one("balance: maglev"), []string{
		`2: defaults: balance: "rr" is unknown: use round-robin, least-connections, random, source-hash, maglev`,
	}},
	{"defaults and service", "defaults:\n  timeouts: {connect: 0s}\n" + one("timeouts: {idle: 0s}"), []string{
		"2: defaults: timeouts.connect: 0s is not longer than 0",
		"6: service web: timeouts.idle: 0s is not longer than 0",
	}},
	{"defaults as a list", "defaults: []\n", []string{"1: defaults: is a list, not a map of keys and values"}},

	// What is not built yet.
	{"sctp", "services:\n  - name: dns\n    frontends:\n      - tcp://10.0.0.1:53\n      - sctp://10.0.0.1:53\n", []string{
		"5: service dns: frontends[1]: an sctp frontend is not built yet in this version",
	}},
}

func TestBadFiles(t *testing.T) {
	for _, c := range badFiles {
		t.Run(c.name, func(t *testing.T) {
			checkFaults(t, c.file, c.want)
		})
	}
}

// checkFaults parses a file that is wrong and compares its faults with "LINE:
// message" strings.
func checkFaults(t *testing.T, file string, want []string) {
	t.Helper()
	cfg, err := Parse("baton.yaml", []byte(file))
	var faults Faults
	if !errors.As(err, &faults) {
		t.Fatalf("got %v, %v; want faults", cfg, err)
	}
	var got []string
	for line := range strings.SplitSeq(faults.Error(), "\n") {
		got = append(got, strings.TrimPrefix(line, "baton.yaml:"))
	}
	if !slices.Equal(got, want) {
		t.Errorf("file:\n%s\ngot:\n\t%s\nwant:\n\t%s", file, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}
