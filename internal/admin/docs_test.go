package admin

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb/store"
)

const moduleRoot = "../.."

func readDoc(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(moduleRoot, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// constants lists the string constants of a type, in the order of the source.
func constants(t *testing.T, pkg, typeName string) (values []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(moduleRoot, pkg, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		src, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(src, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			id, ok := spec.Type.(*ast.Ident)
			if !ok || id.Name != typeName || len(spec.Values) != 1 {
				return true
			}
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				v, _ := strconv.Unquote(lit.Value)
				values = append(values, v)
			}
			return true
		})
	}
	return values
}

var (
	listMarker = regexp.MustCompile(`(?m)^<!-- list: (\S+) (\S+) -->$`)
	tableRow   = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
)

// docLists finds the tables of words in a document, by package and type.
func docLists(doc string) map[[2]string][]string {
	lists := make(map[[2]string][]string)
	for _, m := range listMarker.FindAllStringSubmatchIndex(doc, -1) {
		rest, _, _ := strings.Cut(strings.TrimLeft(doc[m[1]:], "\n"), "\n\n")
		var words []string
		for _, row := range tableRow.FindAllStringSubmatch(rest, -1) {
			words = append(words, row[1])
		}
		lists[[2]string{doc[m[2]:m[3]], doc[m[4]:m[5]]}] = words
	}
	return lists
}

func TestDocumentedWords(t *testing.T) {
	lists := docLists(readDoc(t, "contract.md"))
	for k, v := range docLists(readDoc(t, "metrics.md")) {
		lists[k] = v
	}
	for _, typeName := range []string{
		"Mode", "PathName", "State", "Picked", "By", "Reason", "NotOffloaded", "ClientAddress", "NotTransparent", "HandoffResult", "Drop", "DialFailure", "ProbeResult", "EventName",
	} {
		if _, ok := lists[[2]string{"internal/flow", typeName}]; !ok {
			t.Errorf("flow.%s is documented nowhere", typeName)
		}
	}
	for k, documented := range lists {
		code := constants(t, k[0], k[1])
		if len(code) == 0 || !slices.Equal(code, documented) {
			t.Errorf("%s.%s:\n code %q\n docs %q", k[0], k[1], code, documented)
		}
	}
	if got := constants(t, "internal/flow", "Drop"); len(got) != len(flow.Drops) {
		t.Errorf("the test sees %d drops of %d", len(got), len(flow.Drops))
	}
	if !slices.Equal(constants(t, "internal/admin", "BackendState"), stringsOf(BackendStates)) ||
		!slices.Equal(constants(t, "internal/admin", "Health"), stringsOf(Healths)) {
		t.Error("BackendStates or Healths does not list everything")
	}
}

func stringsOf[T ~string](list []T) (out []string) {
	for _, v := range list {
		out = append(out, string(v))
	}
	return out
}

var (
	metricRow  = regexp.MustCompile("(?m)^\\| `((?:baton|kubeproxy)_[a-z_]+)` \\| (\\w+) \\|[^|]*\\|([^|]*)\\|")
	metricDesc = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
)

func TestDocumentedMetrics(t *testing.T) {
	documented := make(map[string]string)
	for _, m := range metricRow.FindAllStringSubmatch(readDoc(t, "metrics.md"), -1) {
		documented[m[1]] = strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(m[3]), "`", ""), " ", "")
	}
	m := NewMetrics()
	if err := m.ForKubernetes(func() KubernetesState { return KubernetesState{} }); err != nil {
		t.Fatal(err)
	}
	c := &collector{registry: flow.NewRegistry(flow.Options{}), store: store.New(store.Options{})}
	descs := make(chan *prometheus.Desc, 100)
	for _, x := range []prometheus.Collector{c, healthCollector{}, kubernetesCollector{}, m.SyncRules.h, m.NetworkProgramming.h, m.Dial.h, m.Programming.h, m.Handoff.h, m.handoffs} {
		x.Describe(descs)
	}
	close(descs)
	seen := make(map[string]bool)
	for d := range descs {
		parts := metricDesc.FindStringSubmatch(d.String())
		if parts == nil {
			t.Fatalf("cannot read %s", d)
		}
		seen[parts[1]] = true
		labels, ok := documented[parts[1]]
		if !ok || labels != parts[2] {
			t.Errorf("%s{%s} is documented as {%s}", parts[1], parts[2], labels)
		}
	}
	for name := range documented {
		if !seen[name] {
			t.Errorf("%s is documented and does not exist", name)
		}
	}
	if len(seen) < 9 {
		t.Errorf("only %d metrics", len(seen))
	}
}

// TestDocumentedFilters holds the list of filters in step with the code.
func TestDocumentedFilters(t *testing.T) {
	doc := readDoc(t, "contract.md")
	for _, name := range FilterNames() {
		if !strings.Contains(doc, "`--"+name+"`") {
			t.Errorf("--%s is not documented", name)
		}
	}
}
