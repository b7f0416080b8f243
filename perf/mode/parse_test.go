package mode

import (
	"maps"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name string
		got  func() (Counts, error)
		want Counts // nil: an error
	}{
		{"HAProxy", func() (Counts, error) {
			return parseHAProxy(strings.NewReader("# pxname,svname,stot,bin,bout,\n" +
				"echo,FRONTEND,10,100,1000,\necho,backend1,10,100,1000,\necho,BACKEND,10,100,1000,\nsink,FRONTEND,1,2,3,\n\n"))
		}, Counts{Flows: 11, ToBackend: 102, ToClient: 1003}},
		{"HAProxy says nothing", func() (Counts, error) { return parseHAProxy(strings.NewReader("")) }, nil},
		{"HAProxy counts no number", func() (Counts, error) {
			return parseHAProxy(strings.NewReader("# pxname,svname,stot,bin,bout\necho,FRONTEND,x,1,1\n"))
		}, nil},
		{"HAProxy has no such column", func() (Counts, error) {
			return parseHAProxy(strings.NewReader("# pxname,svname,stot,bin\necho,FRONTEND,1,1\n"))
		}, nil},
		{"nginx", func() (Counts, error) {
			return parseNginx("Active connections: 3 \nserver accepts handled requests\n 17 17 2 \nReading: 0 Writing: 1 Waiting: 0 \n")
		}, Counts{Flows: 15}},
		{"nginx says something else", func() (Counts, error) { return parseNginx("<html>") }, nil},
		{"nft", func() (Counts, error) {
			n, err := parseCounter([]byte(`{"nftables": [{"metainfo": {"version": "1"}}, ` +
				`{"counter": {"family": "ip", "name": "other", "packets": 1}}, {"counter": {"family": "ip", "name": "flows", "packets": 42, "bytes": 9}}]}`))
			return Counts{Flows: n}, err
		}, Counts{Flows: 42}},
		{"nft has no such counter", func() (Counts, error) {
			_, err := parseCounter([]byte(`{"nftables": []}`))
			return nil, err
		}, nil},
		{"Baton", func() (Counts, error) { return parseBaton(strings.NewReader(batonMetrics), false) },
			Counts{Flows: 42, ToBackend: 1_000_000, ToClient: 7}},
		{"Baton offloads", func() (Counts, error) { return parseBaton(strings.NewReader(batonMetrics), true) },
			Counts{Flows: 1042, ToBackend: 0, ToClient: 77}},
		{"Baton counts no number", func() (Counts, error) {
			return parseBaton(strings.NewReader("baton_flows_active{path=\"userspace\"} many\n"), false)
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := tc.got()
			if tc.want == nil {
				if err == nil {
					t.Errorf("got %v, want an error", got)
				}
				return
			}
			if err != nil || !maps.Equal(got, tc.want) {
				t.Errorf("got %v, %v, want %v", got, err, tc.want)
			}
		})
	}
}

const batonMetrics = `# HELP baton_flows_active x
baton_flows_active{path="userspace",protocol="tcp",service="echo"} 2
baton_flows_total{ended_by="client",path="userspace",protocol="tcp",reason="closed",service="echo"} 40
baton_flows_total{ended_by="client",path="bpf",protocol="tcp",reason="closed",service="echo"} 1000
baton_bytes_total{direction="to_backend",path="userspace",service="echo"} 1e+06
baton_bytes_total{direction="to_client",path="userspace",service="echo"} 7
baton_bytes_total{direction="to_client",path="bpf",service="echo"} 70
go_goroutines 9
`

func TestCover(t *testing.T) {
	claim := Counts{Flows: 16, ToBackend: 1000, ToClient: 0}
	for _, tc := range []struct {
		name   string
		before Counts
		now    Counts
		want   string // part of the error; empty for none
	}{
		{"all of it", Counts{Flows: 1, ToBackend: 5}, Counts{Flows: 17, ToBackend: 2000, ToClient: 1}, ""},
		{"no counter of bytes", Counts{Flows: 1}, Counts{Flows: 17}, ""},
		{"fewer flows", Counts{Flows: 2}, Counts{Flows: 17, ToBackend: 2000}, "15 flows, of 16"},
		{"fewer bytes", Counts{}, Counts{Flows: 17, ToBackend: 999}, "999 to backend"},
		{"a counter that went back", Counts{Flows: 100}, Counts{Flows: 1}, "0 flows"},
		{"no counter at all", Counts{}, Counts{}, "none of the counters"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.now.Since(tc.before).Cover(claim)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
