package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%swant\n%s", name, got, want)
	}
}

const (
	longName = "a-namespace-with-a-long-name/and-a-service-with-one-too:https"
	longV6   = "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535"
)

const servicesList = `{"services":[
 {"name":"web","frontends":[{"frontend":"tcp://10.96.0.10:80","status":"ready"},{"frontend":"tcp://[fd96::10]:80","status":"pending","reason":"not programmed yet"}],"mode":"proxy","backends":3,"ready":2,"flows":12345},
 {"name":"api","frontends":[{"frontend":"tcp://10.96.0.11:443","status":"failed","reason":"tcp 10.96.0.11:443: address is in use by nginx (pid 812)"}],"mode":"proxy","backends":1,"ready":0,"flows":0}]}`

const backendsList = `{"backends":[
 {"service":"web","backend":"10.202.1.2:8080","state":"ready","health":"healthy","weight":1,"flows":3,"failures":0,"zone":"a","maxConnections":500},
 {"service":"web","backend":"[fd02::2]:8080","state":"drain","health":"healthy","weight":100,"flows":0,"failures":0,"drained":true},
 {"service":"api","backend":"10.202.3.2:443","state":"ready","health":"unhealthy","healthReason":"connection refused, 3 in a row","weight":1,"flows":0,"failures":17,"priority":1}]}`

const endedList = `{"flows":[
 {"id":"0123456789abcdef","protocol":"tcp","service":"web","frontend":"10.96.0.10:80","client":"10.201.1.2:40000","backend":"10.202.1.2:8080","path":"userspace","state":"ended","picked":"algorithm","startedAt":"2025-01-02T03:04:05Z","endedAt":"2025-01-02T04:06:05Z","endedBy":"client","reason":"closed","bytesToBackend":1200,"bytesToClient":3145728},
 {"id":"00000000000000aa","protocol":"tcp","service":"web","frontend":"10.96.0.10:80","client":"10.201.1.3:40000","state":"ended","startedAt":"2025-01-02T03:04:05Z","endedAt":"2025-01-02T03:04:05.35Z","endedBy":"baton","reason":"no-backend"}]}`

// flowsList has one flow that began half a minute ago, and one just now.
func flowsList() string {
	old, now := time.Now().Add(-31*time.Second), time.Now().Add(time.Minute)
	return fmt.Sprintf(`{"flows":[
 {"id":"0123456789abcdef","protocol":"tcp","service":"web","frontend":"10.96.0.10:80","client":"10.201.1.2:40000","backend":"10.202.1.2:8080","path":"userspace","state":"established","picked":"affinity","startedAt":%q,"notOffloaded":"unavailable","bytesToBackend":1200,"bytesToClient":3145728},
 {"id":"00000000000000aa","protocol":"tcp","service":"web","frontend":"10.96.0.10:80","client":"10.201.1.3:40000","state":"dialing","startedAt":%q}]}`,
		old.Format(time.RFC3339Nano), now.Format(time.RFC3339Nano))
}

type drawing func(list io.Reader, out io.Writer, wide bool, limit int) error

var tables = []struct {
	name string
	draw drawing
	list func() string
}{
	{"services", drawServices, func() string { return servicesList }},
	{"backends", drawBackends, func() string { return backendsList }},
	{"flows", drawFlows, flowsList},
	{"ended", drawEnded, func() string { return endedList }},
}

func TestTables(t *testing.T) {
	for _, tc := range tables {
		for _, wide := range []bool{false, true} {
			var out bytes.Buffer
			if err := tc.draw(strings.NewReader(tc.list()), &out, wide, 0); err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(out.String(), time.Date(2025, 1, 2, 4, 6, 5, 0, time.UTC).Local().Format(time.DateTime), "2025-01-02 04:06:05")
			golden(t, fmt.Sprintf("%s-wide=%v.txt", tc.name, wide), text)
		}
	}
}

// TestTablesFit has names and addresses as long as they get.
func TestTablesFit(t *testing.T) {
	long := strings.NewReplacer(
		`"web"`, `"`+longName+`"`, `"api"`, `"`+strings.Repeat("ü", 253)+`"`,
		"10.201.1.2:40000", longV6, "10.202.1.2:8080", longV6, "10.202.3.2:443", longV6,
		"tcp://10.96.0.10:80", "sctp://"+longV6, "tcp://10.96.0.11:443", "tcp://"+longV6,
		`"closed"`, `"half-closed-idle"`, `"established"`, `"handing-off"`,
	)
	for _, tc := range tables {
		var out bytes.Buffer
		if err := tc.draw(strings.NewReader(long.Replace(tc.list())), &out, false, 0); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > tableWidth {
				t.Errorf("%s: %d columns: %s", tc.name, n, line)
			}
		}
		if !strings.Contains(out.String(), "5535") {
			t.Errorf("%s: the port is cut off:\n%s", tc.name, &out)
		}
		var wide bytes.Buffer
		if err := tc.draw(strings.NewReader(long.Replace(tc.list())), &wide, true, 0); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(wide.String(), "…") {
			t.Errorf("%s: the wide table is cut:\n%s", tc.name, &wide)
		}
	}
}

// TestLongTable prints rows as they come once the widths are known.
func TestLongTable(t *testing.T) {
	var out bytes.Buffer
	table := newTable(&out, false, []column{{title: "NAME", cut: true}, {title: "N", right: true}})
	for i := range 3 * tableProbe {
		name := "short"
		if i == 2*tableProbe {
			name = longName
		}
		if err := table.add(name, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		if printed := out.Len() > 0; printed != (i >= tableProbe-1) {
			t.Fatalf("row %d: printed %v", i, printed)
		}
	}
	if err := endTable(table, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 3*tableProbe+1 || len(table.rows) != 0 {
		t.Errorf("%d lines", len(lines))
	}
	if got := lines[2*tableProbe+1]; !strings.HasPrefix(got, "a-…") {
		t.Errorf("the long name is not cut: %q", got)
	}
}

// A row that comes late may have longer words than those that the widths were made for.
func TestLateRowsFit(t *testing.T) {
	var out bytes.Buffer
	table := newTable(&out, false, []column{
		{title: "CLIENT", cut: true}, {title: "BACKEND", cut: true}, {title: "PATH"}, {title: "BYTES", right: true},
	})
	for range tableProbe {
		if err := table.add(longV6+longV6, longV6, "bpf", "0"); err != nil {
			t.Fatal(err)
		}
	}
	out.Reset()
	for _, path := range []string{"userspace", "bpf"} {
		if err := table.add(longV6+longV6, longV6, path, "1023.5K"); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n != tableWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if !strings.Contains(out.String(), ":65535  userspace  1023.5K\n") {
		t.Errorf("got\n%s", &out)
	}
}

func TestLimitedTable(t *testing.T) {
	var out bytes.Buffer
	if err := drawBackends(strings.NewReader(backendsList), &out, false, 1); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "\n") != 3 || !strings.HasSuffix(out.String(), "… and 2 more\n") {
		t.Errorf("got\n%s", &out)
	}
}

func TestShorten(t *testing.T) {
	for _, tc := range []struct {
		in    string
		width int
		want  string
	}{
		{"web", 3, "web"}, {"web", 8, "web"}, {"abcdefgh", 5, "ab…gh"}, {"abcdefgh", 4, "ab…h"},
		{"äöüäöü", 3, "ä…ü"}, {"abc", 1, "…"}, {"abc", 0, ""},
	} {
		if got := shorten(tc.in, tc.width); got != tc.want {
			t.Errorf("%q in %d: %q, want %q", tc.in, tc.width, got, tc.want)
		}
	}
	if got := clip("äöüäöü", 3) + clip("abc", 3); got != "äö…abc" {
		t.Errorf("%q", got)
	}
	if got := printable("a\x1b[31mb\xff\u009b\n"); got != "a?[31mb???" {
		t.Errorf("%q", got)
	}
}

func TestHuman(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 999: "999", 1000: "1.0K", 1024: "1.0K", 1536: "1.5K", 10 << 10: "10K", 999 << 10: "999K", 1000 << 10: "1.0M",
		3 << 20: "3.0M", 5 << 30: "5.0G", 1 << 60: "1.0E", 1<<64 - 1: "16E",
	} {
		if got := humanBytes(n); got != want || len(got) > 5 {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0ms", 350 * time.Millisecond: "350ms", 12 * time.Second: "12s", 192 * time.Second: "3m12s",
		42*time.Minute + 59*time.Second: "42m", 125 * time.Minute: "2h5m", 23 * time.Hour: "23h", 76 * time.Hour: "3d4h",
		240 * time.Hour: "10d", 100_000 * time.Hour: "4166d",
	} {
		if got := humanAge(d); got != want || len(got) > 5 {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}
