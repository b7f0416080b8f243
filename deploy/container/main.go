package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	to := flag.String("o", "baton-image.tar", "the archive to write")
	name := flag.String("name", "docker.io/library/baton:latest", "what the image is called, in full")
	arch := flag.String("arch", runtime.GOARCH, "for which processor: amd64 or arm64")
	flag.Parse()
	if err := makeImage(ctx, *to, imageSpec{Name: *name, Arch: *arch}); err != nil {
		fmt.Fprintln(os.Stderr, "make the image:", err)
		os.Exit(1)
	}
	fmt.Printf("%s has %s for linux/%s\n", *to, *name, *arch)
}

// makeImage builds the binary of a spec and writes the image. What was there before is
// replaced by a whole archive or left alone.
func makeImage(ctx context.Context, to string, s imageSpec) error {
	if base := s.Name[strings.LastIndexByte(s.Name, '/')+1:]; !strings.Contains(base, ":") || base == s.Name {
		return fmt.Errorf("%q is no full name, as docker.io/library/baton:v1", s.Name)
	}
	var err error
	if s.Binary, err = buildBinary(ctx, s.Arch); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := writeImage(&b, s); err != nil {
		return err
	}
	if err := os.WriteFile(to+".new", b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}

// buildBinary builds the command as Containerfile does.
func buildBinary(ctx context.Context, arch string) (_ []byte, err error) {
	dir, err := os.MkdirTemp("", "baton-image-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "baton")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "github.com/baton-lb/baton/cmd/baton")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the binary: %w\n%s", err, out)
	}
	return os.ReadFile(path)
}
