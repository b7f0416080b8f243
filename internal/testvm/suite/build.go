package suite

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/baton-lb/baton/internal/testvm"
)

// program is a package's test program, and where things are in the machine.
type program struct {
	pkg   string
	host  string // on the host
	baton string // what it tests, on the host; "" unless it tests the command
}

// guestDir is where a package's tests run: beside its testdata, as on the host.
func (p program) guestDir() string  { return path.Join("/root", p.pkg) }
func (p program) guestPath() string { return p.guestDir() + "/" + path.Base(p.host) }

// Tests of the built command cannot build it in the machine: they find it at
// batonPath, as batonEnv tells them.
const (
	e2ePackage = "internal/e2e"
	batonPath  = "/usr/local/bin/baton"
	batonEnv   = "BATON_COMMAND"
)

// build builds the test programs of packages, and what they test, into dir. Without
// symbols they are half as big, and the machine's memory holds them twice.
func (s Suite) build(ctx context.Context, dir string, pkgs []string) (programs []program, err error) {
	for _, pkg := range pkgs {
		p := program{pkg: pkg, host: filepath.Join(dir, strings.ReplaceAll(pkg, "/", "-")+".test")}
		if err := s.goCommand(ctx, "test", "-c", "-ldflags=-s -w", "-o", p.host, "./"+pkg); err != nil {
			return nil, err
		}
		if _, err := os.Stat(p.host); err != nil {
			return nil, fmt.Errorf("package %s: there are no tests in it", pkg)
		}
		if pkg == e2ePackage {
			p.baton = filepath.Join(dir, "baton")
			if err := s.goCommand(ctx, "build", "-ldflags=-s -w", "-o", p.baton, "./cmd/baton"); err != nil {
				return nil, err
			}
		}
		programs = append(programs, p)
	}
	return programs, nil
}

func (s Suite) goCommand(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = s.Module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// files are what the machine gets for some programs.
func (s Suite) files(programs []program) (files []testvm.File) {
	for _, p := range programs {
		if p.baton != "" {
			files = append(files, testvm.File{Source: p.baton, Path: batonPath})
		}
		files = append(files, testvm.File{Source: p.host, Path: p.guestPath()})
		testdata := filepath.Join(s.Module, p.pkg, "testdata")
		if _, err := os.Stat(testdata); err == nil {
			files = append(files, testvm.File{Source: testdata, Path: p.guestDir() + "/testdata"})
		}
	}
	return files
}
