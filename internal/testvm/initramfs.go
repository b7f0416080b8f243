package testvm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cavaliergopher/cpio"

	"github.com/baton-lb/baton/internal/testvm/wire"
)

// essential are the tools that a machine has in any case: the kernel asks modprobe
// for modules.
var essential = []string{"modprobe"}

// texts are the files that programs look up names in.
var texts = map[string]string{
	"/etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
	"/etc/group":         "root:x:0:\nnogroup:x:65534:\n",
	"/etc/hosts":         "127.0.0.1 localhost testvm\n::1 localhost\n",
	"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nprotocols: files\nservices: files\n",
	"/etc/resolv.conf":   "",
}

// hostFiles are taken from the host where it has them.
var hostFiles = []string{"/etc/protocols", "/etc/services", "/etc/iproute2", "/usr/share/iproute2"}

// writeInitramfs writes what the machine boots into: the kernel's modules, followed
// by everything else.
func (s Spec) writeInitramfs(ctx context.Context, k kernel, work, path string) (err error) {
	t, err := s.tree(ctx, work)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make initramfs: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	modules, err := os.Open(k.modules())
	if err != nil {
		return fmt.Errorf("make initramfs: %w", err)
	}
	defer modules.Close()
	if _, err := io.Copy(f, modules); err != nil {
		return fmt.Errorf("make initramfs: %w", err)
	}
	if err := t.writeTo(f); err != nil {
		return fmt.Errorf("make initramfs: %w", err)
	}
	return nil
}

// tree is all of the machine's files but the modules.
func (s Spec) tree(ctx context.Context, work string) (*tree, error) {
	t := newTree()
	for _, m := range merged {
		t.nodes[m[0]] = node{mode: cpio.TypeSymlink | 0o777, link: "/" + m[1]}
	}
	for _, dir := range []string{"/root", "/run", "/var/lib", "/var/log", "/usr/lib64", wire.OutDir} {
		if err := t.addDir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	for path, text := range texts {
		if err := t.addData(path, []byte(text)); err != nil {
			return nil, err
		}
	}
	for _, path := range hostFiles {
		if err := t.addHost(path, path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	if err := s.addJob(ctx, t, work); err != nil {
		return nil, err
	}
	return t, nil
}

// addJob puts in what this machine is for.
func (s Spec) addJob(ctx context.Context, t *tree, work string) error {
	init := filepath.Join(work, "init")
	if err := buildGuest(ctx, init); err != nil {
		return err
	}
	if err := t.addHost(init, "/init"); err != nil {
		return err
	}
	job, err := s.job().Marshal()
	if err != nil {
		return fmt.Errorf("write job: %w", err)
	}
	if err := t.addData(wire.JobFile, job); err != nil {
		return err
	}
	for _, name := range append(essential, s.Tools...) {
		if err := t.addTool(ctx, name); err != nil {
			return err
		}
	}
	for _, f := range s.Files {
		if err := t.addHost(f.Source, f.Path); err != nil {
			return err
		}
	}
	return nil
}
