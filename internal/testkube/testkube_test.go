package testkube

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The program is called by what it is made of.
func TestKey(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	key := func() string {
		t.Helper()
		k, err := keyOf(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	write("go.mod", "module m\n")
	first := key()
	if !strings.HasPrefix(first, "kubernetes-"+release+"-") || key() != first {
		t.Errorf("got %s, then %s", first, key())
	}
	write("main.go", "package main\n")
	second := key()
	write("main.go", "package main // changed\n")
	if third := key(); second == first || third == second {
		t.Errorf("got %s, %s, %s", first, second, third)
	}
}

// What is built is of the release that it says it is.
func TestRelease(t *testing.T) {
	source, err := sourceDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "k8s.io/kubernetes "+release+"\n") {
		t.Errorf("%s is not what go.mod requires", release)
	}
	staging := strings.Replace(release, "v1.", "v0.", 1)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, " => k8s.io/") && !strings.HasSuffix(line, " "+staging+"\n") {
			t.Errorf("not of that release: %s", line)
		}
	}
}

func TestClusterRole(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rbac.yaml")
	const text = `apiVersion: v1
kind: ServiceAccount
metadata: {name: a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: b}
rules: [{apiGroups: [""], resources: [nodes], verbs: [list]}]
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	role, err := clusterRole(file)
	if err != nil || role.Name != "b" || len(role.Rules) != 1 {
		t.Errorf("got %+v, %v", role, err)
	}
	if err := os.WriteFile(file, []byte(text[:60]), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := clusterRole(file); err == nil {
		t.Error("a file without a role has one")
	}
}

func TestRequests(t *testing.T) {
	c := &Cluster{t: t, dir: t.TempDir()}
	const log = `{"verb":"list","objectRef":{"resource":"nodes"},"responseStatus":{"code":200}}
{"verb":"list","objectRef":{"resource":"nodes"},"responseStatus":{"code":200}}
{"verb":"get","requestURI":"/version","responseStatus":{"code":200}}
{"verb":"create","objectRef":{"apiGroup":"events.k8s.io","resource":"events"},"responseStatus":{"code":403}}
{"verb":"watch","objectRef":{"resource":"no`
	if err := os.WriteFile(c.path(auditFile), []byte(log), 0o644); err != nil {
		t.Fatal(err)
	}
	asked, forbidden := c.Requests()
	list, create := Request{"list", "", "nodes"}, Request{"create", "events.k8s.io", "events"}
	if !slices.Equal(asked, []Request{list, create}) || !slices.Equal(forbidden, []Request{create}) {
		t.Errorf("asked for %v, forbidden were %v", asked, forbidden)
	}
}

func TestTail(t *testing.T) {
	var l tail
	for range 10 * tailBytes {
		_, _ = l.Write([]byte("x"))
	}
	_, _ = l.Write([]byte("end\n"))
	if s := l.String(); len(s) > 2*tailBytes || !strings.HasSuffix(s, "xend") {
		t.Errorf("%d bytes are kept", len(s))
	}
}
