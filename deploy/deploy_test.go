package deploy

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// parsers say who reads which file. One that nobody reads is a file that nothing holds.
var parsers = map[string]func(t *testing.T, path string){
	"kubernetes/*/*.yaml":     parseObjects,
	"systemd/*.service":       parseService,
	"systemd/*.mount":         parseMount,
	"container/Containerfile": parseContainerfile,
	"grafana/*.json":          parseDashboard,
	"prometheus/*.yaml":       parseRules,
}

// notObjects are files in the directories of manifests that are something else, and are
// read by tests of their own.
var notObjects = []string{"kubernetes/base/config.yaml", "kubernetes/replace-kube-proxy/kube-proxy-elsewhere.yaml"}

func TestEveryFileParses(t *testing.T) {
	for path := range files(t) {
		t.Run(path, func(t *testing.T) {
			switch ext := filepath.Ext(path); {
			case ext == ".md" || ext == ".go" || slices.Contains(notObjects, path):
				return
			case filepath.Base(path) == "kustomization.yaml":
				parseKustomization(t, path)
				return
			}
			for pattern, parse := range parsers {
				if ok, err := filepath.Match(pattern, path); ok && err == nil {
					parse(t, path)
					return
				}
			}
			t.Error("no test reads it")
		})
	}
}

// files lists the files below this directory.
func files(t *testing.T) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all[path] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// command is the binary, built once.
var command = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "baton-deploy-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "baton")
	out, err := exec.Command("go", "build", "-o", path, "github.com/baton-lb/baton/cmd/baton").CombinedOutput()
	if err != nil {
		os.RemoveAll(dir)
		return "", &exec.Error{Name: "go build: " + string(out), Err: err}
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := command(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

var flagInHelp = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`)

// checkCommandLine holds a command line of ours to what --help says.
func checkCommandLine(t *testing.T, args []string) {
	t.Helper()
	path, err := command()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, args[0], "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("baton %s --help: %v: %s", args[0], err, out)
	}
	if !strings.Contains(string(out), "baton "+args[0]) {
		t.Errorf("there is no command %s", args[0])
	}
	var known []string
	for _, m := range flagInHelp.FindAllStringSubmatch(string(out), -1) {
		known = append(known, m[1])
	}
	for _, arg := range args[1:] {
		name, isFlag := strings.CutPrefix(arg, "--")
		if name, _, _ := strings.Cut(name, "="); isFlag && !slices.Contains(known, name) {
			t.Errorf("baton %s has no flag --%s", args[0], name)
		}
	}
}
