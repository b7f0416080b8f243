package testkube

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/baton-lb/baton/internal/cache"
)

const (
	// Variable names a directory with the program, for whoever must not build it.
	Variable = "BATON_TESTKUBE"

	cacheName   = "baton-testkube"
	programName = "control"

	// release is what the programs say they are; without it they call themselves v0.0.0.
	release = "v1.34.3"
)

// program gets the path of the control plane's program, and what keeps it in place.
func program(ctx context.Context) (path string, release func() error, err error) {
	if dir := os.Getenv(Variable); dir != "" {
		return filepath.Join(dir, programName), func() error { return nil }, nil
	}
	e, err := Build(ctx)
	if err != nil {
		return "", nil, err
	}
	return filepath.Join(e.Dir, programName), e.Close, nil
}

// Build gets the directory with the control plane's program out of the user's cache, and
// into it if need be.
func Build(ctx context.Context) (*cache.Entry, error) {
	source, err := sourceDir(ctx)
	if err != nil {
		return nil, err
	}
	key, err := keyOf(ctx, source)
	if err != nil {
		return nil, fmt.Errorf("read the source of the control plane: %w", err)
	}
	kept, err := cache.Open("", cacheName)
	if err != nil {
		return nil, err
	}
	return kept.Get(key, func(dir string) error {
		_, err := runGo(ctx, source, "build", "-trimpath", "-buildvcs=false", "-ldflags", linkFlags, "-o", filepath.Join(dir, programName), ".")
		return err
	})
}

const linkFlags = "-s -w -X k8s.io/component-base/version.gitVersion=" + release +
	" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34"

// sourceDir is the directory of package control.
func sourceDir(ctx context.Context) (string, error) {
	dir, err := runGo(ctx, "", "list", "-f", "{{.Dir}}", "github.com/baton-lb/baton/internal/testkube")
	return filepath.Join(dir, programName), err
}

// keyOf is made of all that the program is made of.
func keyOf(ctx context.Context, source string) (string, error) {
	version, err := runGo(ctx, source, "env", "GOVERSION")
	if err != nil {
		return "", err
	}
	files, err := os.ReadDir(source)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, version, linkFlags)
	for _, f := range files { // in the order of their names
		sum, err := cache.FileSum(filepath.Join(source, f.Name()))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, f.Name(), sum)
	}
	return fmt.Sprintf("kubernetes-%s-%s-%s", release, runtime.GOARCH, hex.EncodeToString(h.Sum(nil))[:16]), nil
}

// runGo runs the go command and returns what it prints. Kubernetes needs no C, and
// without it is the same wherever it is built.
func runGo(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &said
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
