package testvm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// guestPackage is the machine's first process.
const guestPackage = "github.com/baton-lb/baton/internal/testvm/guest"

// buildGuest builds the guest, which the go command does once and remembers.
func buildGuest(ctx context.Context, path string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, guestPackage)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build guest: %w: %s", err, out)
	}
	return nil
}

// addTool puts a program of the host into /usr/bin, and its libraries where it looks
// for them. One that is several in one goes by the name it is called by.
func (t *tree) addTool(ctx context.Context, name string) error {
	source, err := lookTool(name)
	if err != nil {
		return err
	}
	if err := t.addHost(source, "/usr/bin/"+path.Base(name)); err != nil {
		return fmt.Errorf("copy program %s: %w", name, err)
	}
	libraries, err := librariesOf(ctx, source)
	if err != nil {
		return fmt.Errorf("copy program %s: %w", name, err)
	}
	for _, l := range libraries {
		if err := t.addHost(l, l); err != nil {
			return fmt.Errorf("copy program %s: %w", name, err)
		}
	}
	return nil
}

// librariesOf lists the shared libraries of a program, the loader among them. A
// static program has none.
func librariesOf(ctx context.Context, program string) ([]string, error) {
	out, err := runTool(ctx, "", "ldd", program)
	if err != nil {
		if strings.Contains(err.Error(), "not a dynamic executable") {
			return nil, nil
		}
		return nil, err
	}
	return parseLdd(string(out)), nil
}

// parseLdd reads lines of the forms
//
//	linux-vdso.so.1 (0x00007ffd0a5f2000)
//	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1)
//	/lib64/ld-linux-x86-64.so.2 (0x00007f2)
func parseLdd(text string) (paths []string) {
	for line := range strings.Lines(text) {
		if _, after, ok := strings.Cut(line, "=>"); ok {
			line = after
		}
		if f := strings.Fields(line); len(f) > 0 && filepath.IsAbs(f[0]) {
			paths = append(paths, f[0])
		}
	}
	return paths
}
