package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/perf/report"
)

// Every mode meets every workload once, and each of them yields figures whose
// traffic went the way it claims. How large the figures are is not for a test.
func TestQuick(t *testing.T) {
	testnet.RequireRoot(t)
	out := t.TempDir()
	o, err := parse([]string{"-quick", "-out", out})
	if err != nil {
		t.Fatal(err)
	}
	var shown, said bytes.Buffer
	o.stdout, o.stderr, o.duration = &shown, &said, 50*time.Millisecond
	if err := o.run(t.Context()); err != nil {
		t.Errorf("%v\n%s", err, said.String())
	}
	r, err := readReport(filepath.Join(out, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	available := checkModes(t, r)
	cells := make(map[string]int)
	for _, c := range r.Cells {
		cells[c.Mode]++
	}
	for mode, want := range map[string]int{"direct": 10, "nftables": 10, "baton": 11, "haproxy": 8, "nginx": 11, "nginx-once": 3} {
		if available[mode] && cells[mode] != want {
			t.Errorf("%s has %d cells, want %d", mode, cells[mode], want)
		}
	}
	if text := shown.String(); !strings.Contains(text, "### kept-32") || !strings.Contains(text, "### Goals") {
		t.Errorf("the report is\n%s", text)
	}
	testFrom(t, out, shown.String())
}

// checkModes says which modes there are. In CI all are.
func checkModes(t *testing.T, r *report.Report) map[string]bool {
	t.Helper()
	available := make(map[string]bool)
	for _, m := range r.Modes {
		available[m.Name] = m.Unavailable == ""
		if m.Unavailable == "" {
			continue
		}
		if os.Getenv("CI") != "" {
			t.Errorf("%s: %s", m.Name, m.Unavailable)
		} else {
			t.Logf("not run: %s: %s", m.Name, m.Unavailable)
		}
	}
	return available
}

// testFrom shows a report again, and puts it into a document.
func testFrom(t *testing.T, dir, want string) {
	t.Helper()
	document := filepath.Join(dir, "doc.md")
	if err := os.WriteFile(document, []byte("<!-- figures: begin -->\n<!-- figures: end -->\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o, err := parse([]string{"-from", dir, "-update", document})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(document)
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("the document is now\n%s", text)
	}
}

// A profile is taken of what can be profiled.
func TestProfile(t *testing.T) {
	testnet.RequireRoot(t)
	out := t.TempDir()
	o, err := parse([]string{"-quick", "-profile", "-out", out, "-modes", "direct,baton", "-workloads", "kept-1"})
	if err != nil {
		t.Fatal(err)
	}
	var shown, said bytes.Buffer
	o.stdout, o.stderr, o.duration = &shown, &said, 50*time.Millisecond
	if err := o.run(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	profiles, _ := filepath.Glob(filepath.Join(out, "*.pprof"))
	if len(profiles) != 1 || filepath.Base(profiles[0]) != "baton-kept-1.pprof" {
		t.Fatalf("profiles are %v", profiles)
	}
	if text, err := os.ReadFile(profiles[0]); err != nil || !bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		t.Errorf("the profile is no gzip: %d bytes, %v", len(text), err)
	}
}
