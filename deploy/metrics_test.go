package deploy

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var (
	metricRow  = regexp.MustCompile("(?m)^\\| `((?:baton|kubeproxy)_[a-z_]+)` \\| ([a-z]+) \\|[^|]*\\|([^|]*)\\|")
	listedWord = regexp.MustCompile("`([^`]+)`")
	metricName = regexp.MustCompile(`\b(baton|kubeproxy|process|go)_[a-z_]+`)
	selector   = regexp.MustCompile(`\b((?:baton|kubeproxy)_[a-z_]+)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z_]+)(?:=~|!~|!=|=)"([^"]*)"`)
)

// usual are metrics of the process that every exporter in Go has.
var usual = []string{"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds"}

// metric is what docs/metrics.md says of one.
type metric struct {
	kind   string
	labels []string
}

func metrics(t *testing.T) map[string]metric {
	t.Helper()
	all := make(map[string]metric)
	for _, row := range metricRow.FindAllStringSubmatch(read(t, "../docs/metrics.md"), -1) {
		m := metric{kind: row[2]}
		for _, word := range listedWord.FindAllStringSubmatch(row[3], -1) {
			m.labels = append(m.labels, word[1])
		}
		all[row[1]] = m
		if m.kind == "histogram" {
			all[row[1]+"_bucket"], all[row[1]+"_sum"], all[row[1]+"_count"] = m, m, m
		}
	}
	if len(all) < 15 {
		t.Fatalf("docs/metrics.md lists %d metrics: its tables read differently now", len(all))
	}
	return all
}

// checkQuery holds a query to the metrics that there are, with their labels. What of
// label values is not a variable or a pattern has to be in the documentation.
func checkQuery(t *testing.T, query string, recorded []string) {
	t.Helper()
	known := metrics(t)
	bare := regexp.MustCompile(`"[^"]*"`).ReplaceAllString(query, `""`)
	for _, r := range recorded {
		bare = strings.ReplaceAll(bare, r, "")
	}
	for _, name := range metricName.FindAllString(bare, -1) {
		if m, ok := known[name]; !ok && !slices.Contains(usual, name) || m.kind == "histogram" && !strings.Contains(name, "seconds_") {
			t.Errorf("there is no metric %s: %s", name, query)
		}
	}
	doc := read(t, "../docs/metrics.md") + read(t, "../docs/contract.md")
	for _, s := range selector.FindAllStringSubmatch(query, -1) {
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			if m[1] == "instance" || m[1] == "job" {
				continue
			}
			if !slices.Contains(known[s[1]].labels, m[1]) {
				t.Errorf("%s has no label %s: %s", s[1], m[1], query)
			}
			for value := range strings.SplitSeq(m[2], "|") {
				if !strings.HasPrefix(value, "$") && !strings.Contains(doc, "`"+value+"`") {
					t.Errorf("%s is never %q: %s", m[1], value, query)
				}
			}
		}
	}
}

// ruleFile is what Prometheus reads.
type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Record      string            `json:"record"`
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			For         string            `json:"for"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

func parseRules(t *testing.T, path string) {
	var f ruleFile
	if err := yaml.UnmarshalStrict([]byte(read(t, path)), &f); err != nil {
		t.Fatal(err)
	}
	var recorded []string
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			checkQuery(t, r.Expr, recorded)
			switch {
			case (r.Record == "") == (r.Alert == ""):
				t.Errorf("a rule of %s is no record and no alert, or both", g.Name)
			case r.Record != "":
				recorded = append(recorded, r.Record)
			case r.Labels["severity"] == "" || r.Annotations["summary"] == "":
				t.Errorf("alert %s says not how bad it is, or what", r.Alert)
			}
		}
	}
}

// dashboard is as much of Grafana's as matters here.
type dashboard struct {
	Title      string
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr string }
	}
}

func parseDashboard(t *testing.T, path string) {
	var d dashboard
	if err := json.NewDecoder(bytes.NewReader([]byte(read(t, path)))).Decode(&d); err != nil {
		t.Fatal(err)
	}
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
		if v.Type == "query" {
			checkQuery(t, v.Query, nil)
		}
	}
	seen := make(map[int]bool)
	for _, p := range d.Panels {
		if seen[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d (%s) is not well placed", p.ID, p.Title)
		}
		seen[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			checkQuery(t, target.Expr, nil)
			for _, m := range regexp.MustCompile(`\$([a-z]\w*)`).FindAllStringSubmatch(target.Expr, -1) {
				if !slices.Contains(variables, m[1]) {
					t.Errorf("panel %s: there is no variable %s", p.Title, m[1])
				}
			}
		}
	}
}
