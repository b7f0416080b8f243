package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
)

// A Feature is something of the kernel that programs of this package use.
type Feature struct {
	Name    string
	Since   string // the first version of Linux that has it
	Uses    string // what for
	Without string // what becomes of a kernel without it, where that is not the end of what it is used for
	probe   func() error
}

var (
	featureSyscall  = Feature{Name: "bpf(2)", Since: "3.18", Uses: "every program", probe: func() error { return features.HaveMapType(ebpf.Hash) }}
	featureBTF      = Feature{Name: "BTF", Since: "5.4", Uses: "types of the running kernel; no program needs it", probe: haveKernelBTF}
	featureSockmap  = Feature{Name: "sockmap", Since: "4.14", Uses: "few sockets shared by all frontends (sklookup)", probe: func() error { return features.HaveMapType(ebpf.SockMap) }}
	featureSKLookup = Feature{Name: "sk_lookup", Since: "5.9", Uses: "the guard of VIPs, and of frontends' source ranges", probe: func() error { return features.HaveProgramType(ebpf.SkLookup) }}
)

// Features lists what the guard uses, in the order in which to ask. HandoffFeatures has the rest.
func Features() []Feature {
	return []Feature{featureSyscall, featureBTF, featureSockmap, featureSKLookup}
}

// guardNeeds is what the guard cannot do without.
var guardNeeds = []Feature{featureSyscall, featureSockmap, featureSKLookup}

// Have asks the kernel. nil: it is there. An error that wraps ErrNotSupported: it is not, for certain. Any other: that cannot
// be said; it wraps ErrPermission when it is for want of that.
func (f Feature) Have() error {
	err := f.probe()
	switch {
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%s (Linux %s): %w", f.Name, f.Since, ErrNotSupported)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w to ask for %s: %w", ErrPermission, f.Name, err)
	case err != nil:
		return fmt.Errorf("ask for %s: %w", f.Name, err)
	}
	return nil
}

const kernelBTF = "/sys/kernel/btf/vmlinux"

func haveKernelBTF() error {
	_, err := os.Stat(kernelBTF)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: no %s", ebpf.ErrNotSupported, kernelBTF)
	}
	return err
}
