package file

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/lb"
)

const (
	examplePath = "../../../docs/examples/baton.yaml"
	docsPath    = "../../../docs/configuration.md"
)

func TestExample(t *testing.T) {
	cfg, err := Load(examplePath)
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Services) != 2 {
		t.Fatalf("%d services", len(cfg.Services))
	}
	web, db := cfg.Services[0], cfg.Services[1]
	if web.Balance != lb.LeastConnections || len(web.Backends) != 3 || web.Affinity.Timeout != 30*time.Minute {
		t.Errorf("web: %+v", web)
	}
	if db.Timeouts.Connect != time.Second || db.Timeouts.Idle != 24*time.Hour {
		t.Errorf("database: %+v", db.Timeouts)
	}
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// Every example of the documentation parses: those that show what is not built
// yet are refused for that alone.
func TestDocumentation(t *testing.T) {
	doc := readDoc(t)
	blocks := yamlBlock.FindAllStringSubmatch(doc, -1)
	if len(blocks) == 0 {
		t.Fatal("no example found")
	}
	for _, b := range blocks {
		if _, err := Parse("example", []byte(b[1])); err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.Contains(line, "not built yet") {
					t.Errorf("%s\nof:\n%s", line, b[1])
				}
			}
		}
	}
}

// Every key has a row in the documentation.
func TestEveryKeyIsDocumented(t *testing.T) {
	doc := readDoc(t)
	check := func(section string, keys []string) {
		for _, k := range keys {
			if !strings.Contains(doc, "| `"+section+k+"` |") {
				t.Errorf("no row for %s%s", section, k)
			}
		}
	}
	check("", names(fileFields))
	check("admin.", names(adminFields))
	check("source.", names(sourceFields))
	check("", names(serviceFields))
	check("backends[].", names(backendFields))
	check("affinity.", names(affinityFields))
	check("health.", names(healthFields))
	check("timeouts.", names(timeoutFields))
	check("offload.", names(offloadFields))
	check("limits.", names(limitFields))
	check("steer.", names(steerFields))
	check("sctp.", names(sctpFields))
}

func names[T any](fields []field[T]) (keys []string) {
	for _, f := range fields {
		keys = append(keys, f.key)
	}
	return keys
}

func readDoc(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
