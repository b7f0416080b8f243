package arch

import (
	"strings"
	"testing"
)

func TestRules(t *testing.T) {
	const ours = module + "/"
	for _, tc := range []struct {
		name string
		file string // package/name
		imp  string
		want string // part of the fault; empty for none
	}{
		{"allowed", "lb/sched/a.go", ours + "lb", ""},
		{"standard library", "lb/sched/a.go", "slices", ""},
		{"not in the row", "lb/sched/a.go", ours + "lb/store", "table does not allow"},
		{"tree", "lb/relay/a.go", ours + "lb/relay/capture", ""},
		{"tree above", "lb/relay/capture/a.go", ours + "lb/relay", "table does not allow"},
		{"exception", "internal/admin/a.go", ours + "lb/source/file", "table does not allow"},
		{"all but", "internal/admin/a.go", ours + "offload", ""},
		{"unlisted package", "lb/extra/a.go", "fmt", "lb/extra is not in the table"},
		{"data path to offload", "lb/relay/a.go", ours + "offload", "declares the interfaces"},
		{"data path test to offload", "sctp/a_test.go", ours + "conntrack", "declares the interfaces"},
		{"no package at the top", "lb/a.go", module, "no package at the top"},

		{"test of its own package", "lb/sched/a_test.go", ours + "lb/sched", ""},
		{"test on hosts", "lb/relay/a_test.go", ours + "internal/testnet", ""},
		{"hosts in production", "lb/relay/a.go", ours + "internal/testnet", "are for tests"},
		{"hosts in admin", "internal/admin/a.go", ours + "internal/testnet", "are for tests"},
		{"hosts in the demonstration", "cmd/baton/a.go", ours + "internal/testnet", ""},
		{"test wants more than the row", "lb/health/a_test.go", ours + "lb/relay", "table does not allow"},
		{"test with more in its row", "deploy/a_test.go", ours + "lb/source/file", ""},
		{"example wires packages", "lb/example_test.go", ours + "lb/relay", ""},
		{"example of insiders", "lb/example_test.go", ours + "internal/flow", "another program can"},

		{"client-go at home", "lb/source/kube/a.go", "k8s.io/client-go/rest", ""},
		{"client-go abroad", "lb/source/file/a.go", "k8s.io/client-go/rest", "nobody pays"},
		{"client-go in a test abroad", "lb/store/a_test.go", "k8s.io/api/core/v1", "nobody pays"},
		{"prometheus at home", "internal/admin/a.go", "github.com/prometheus/client_golang/prometheus", ""},
		{"prometheus abroad", "lb/relay/a.go", "github.com/prometheus/client_golang/prometheus", "collectors translate"},
		{"prometheus in a collector", "lb/relay/collector.go", "github.com/prometheus/client_golang/prometheus", ""},
		{"cobra at home", "cmd/baton/a.go", "github.com/spf13/cobra", ""},
		{"cobra abroad", "internal/admin/a.go", "github.com/spf13/cobra", "options are structs"},
		{"goleak in production", "lb/store/a.go", "go.uber.org/goleak", "for tests"},
		{"testing in production", "lb/store/a.go", "testing", "for tests"},
		{"fstest is not testing", "lb/store/a.go", "testing/fstest", ""},
		{"log", "cmd/baton/a.go", "log", "handed in"},
		{"slog", "cmd/baton/a.go", "log/slog", ""},

		{"pure reads a file", "lb/a.go", "os", "lb is pure"},
		{"pure with addresses", "lb/a.go", "net/netip", ""},
		{"pure tested with files", "lb/a_test.go", "os", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i := strings.LastIndex(tc.file, "/")
			f := file{pkg: tc.file[:i], name: tc.file[i+1:], imports: []string{tc.imp}}
			got := strings.Join(check(table, []file{f}), "; ")
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestMatches(t *testing.T) {
	for _, tc := range []struct {
		pattern, pkg string
		want         bool
	}{
		{"lb", "lb", true},
		{"lb", "lb/store", false},
		{"lb/...", "lb", true},
		{"lb/...", "lb/store", true},
		{"lb/...", "lbx", false},
		{"...", "lb/store", true},
		{"cmd/...", "cmd/baton", true},
	} {
		if got := matches([]string{tc.pattern}, tc.pkg); got != tc.want {
			t.Errorf("%s for %s: %v", tc.pattern, tc.pkg, got)
		}
	}
}
