package testvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/baton-lb/baton/internal/cache"
)

// debPackage is what apt knows of a package's candidate version.
type debPackage struct {
	name, version, sha256 string
	depends               []string // names, the first of each alternative
}

// String is the package as apt-get takes it.
func (p debPackage) String() string { return p.name + "=" + p.version }

// findKernel finds the package with the kernel of a version, such as 6.1: what the
// version's own meta package stands for, or the release's.
func findKernel(ctx context.Context, kernel string) (debPackage, error) {
	for _, name := range []string{"linux-image-" + kernel + "-cloud-amd64", "linux-image-cloud-amd64"} {
		p, err := showPackage(ctx, name)
		for err == nil {
			next, meta := p.image()
			if !meta {
				break
			}
			p, err = showPackage(ctx, next)
		}
		if err == nil && strings.HasPrefix(p.version, kernel+".") {
			return p, nil
		}
	}
	return debPackage{}, fmt.Errorf("linux %s: %w: apt knows no package of it", kernel, ErrUnavailable)
}

// image says which kernel a meta package stands for.
func (p debPackage) image() (name string, meta bool) {
	for _, d := range p.depends {
		if strings.HasPrefix(d, "linux-image-") {
			return d, true
		}
	}
	return "", false
}

func showPackage(ctx context.Context, name string) (debPackage, error) {
	out, err := runTool(ctx, "", "apt-cache", "show", "--no-all-versions", name)
	if err != nil {
		return debPackage{}, err
	}
	p := parsePackage(string(out))
	if p.name == "" || p.version == "" || p.sha256 == "" {
		return debPackage{}, fmt.Errorf("show package %s: %w: apt-cache said %q", name, ErrUnavailable, out)
	}
	return p, nil
}

// parsePackage reads a stanza of deb822(5).
func parsePackage(stanza string) (p debPackage) {
	for line := range strings.Lines(stanza) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "Package":
			p.name = value
		case "Version":
			p.version = value
		case "SHA256":
			p.sha256 = value
		case "Depends":
			for d := range strings.SplitSeq(value, ",") {
				if words := strings.Fields(d); len(words) > 0 {
					p.depends = append(p.depends, words[0])
				}
			}
		}
	}
	return p
}

// download fetches the package into a directory. The user that apt drops to could
// not write there.
func (p debPackage) download(ctx context.Context, dir string) (path string, err error) {
	if _, err := runTool(ctx, dir, "apt-get", "-q", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3", "download", p.String()); err != nil {
		return "", err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("download %s: got %d packages: %w", p, len(found), errors.Join(err, ErrUnavailable))
	}
	sum, err := cache.FileSum(found[0])
	if err != nil {
		return "", fmt.Errorf("check %s: %w", p, err)
	}
	if sum != p.sha256 {
		return "", fmt.Errorf("check %s: its SHA-256 is %s, and apt says %s", p, sum, p.sha256)
	}
	return found[0], nil
}

// updateApt fetches apt's lists anew, which only root may.
func updateApt(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("run apt-get update as root")
	}
	_, err := runTool(ctx, "", "apt-get", "-q", "update")
	return err
}

// runTool runs a program of the host and returns its standard output.
func runTool(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	path, err := lookTool(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &said
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return out, nil
}

// lookTool finds a program also where users have no PATH to.
func lookTool(name string) (string, error) {
	path, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if err != nil {
			path, err = exec.LookPath(filepath.Join(dir, name))
		}
	}
	if err != nil {
		return "", fmt.Errorf("find program %s: %w", name, err)
	}
	return path, nil
}
