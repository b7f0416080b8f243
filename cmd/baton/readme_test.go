package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// The first file that a newcomer copies must work.
func TestReadmeFilesAreFine(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) == 0 {
		t.Fatal("README.md has no baton.yaml")
	}
	for i, block := range blocks {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("%d.yaml", i))
		if err := os.WriteFile(path, block[1], 0o644); err != nil {
			t.Fatal(err)
		}
		result, err := check(path)
		if err != nil || !result.Fine || len(result.Warnings) > 0 {
			t.Errorf("%v, %+v:\n%s", err, result, block[1])
		}
	}
}
