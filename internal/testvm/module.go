package testvm

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// wantedModules are the modules that a machine can load, by name or by directory
// below kernel/. What they depend on comes with them.
var wantedModules = []string{
	"virtio_pci", "virtio_console", "virtio_rng",
	"veth", "dummy", "tun", "tap", "ifb", "macvlan", "ipvlan", "vrf", "bonding", "vxlan", "geneve",
	"net/netfilter", "net/ipv4", "net/ipv6", "net/bridge", "net/sctp", "net/sched", "net/core", "net/8021q", "net/802",
	"net/llc", "net/packet", "net/unix", "net/key", "net/xfrm", "net/tls", "net/netlink", "net/xdp", "net/mpls",
	"lib", "crypto", "arch/x86/crypto",
}

// archiveModules writes the wanted modules of an unpacked kernel package to a cpio
// archive. They are not compressed in it: that is done once here, and not by a
// machine that is interpreted.
func archiveModules(ctx context.Context, root, release, archive string) error {
	base := root
	if _, err := os.Stat(filepath.Join(root, "lib/modules")); err != nil {
		base = filepath.Join(root, "usr") // where newer packages have them
	}
	dir := filepath.Join(base, "lib/modules", release)
	if err := decompressModules(ctx, dir); err != nil {
		return err
	}
	depmod := func() error {
		// depmod wants lib/modules below what it is given
		_, err := runTool(ctx, "", "depmod", "-b", base, release)
		return err
	}
	if err := depmod(); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return err
	}
	if err := removeOthers(dir, parseDependencies(string(text)).closure(wantedModules)); err != nil {
		return err
	}
	if err := depmod(); err != nil { // now without those that are gone
		return err
	}
	t := newTree()
	if err := t.addHost(dir, "/lib/modules/"+release); err != nil {
		return err
	}
	return t.writeFile(archive)
}

func decompressModules(ctx context.Context, dir string) error {
	var packed []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".ko.xz") {
			packed = append(packed, path)
		}
		return err
	})
	for some := range slices.Chunk(packed, 100) {
		if err == nil {
			_, err = runTool(ctx, "", "xz", append([]string{"-d", "--"}, some...)...)
		}
	}
	return err
}

// removeOthers removes all modules but those in keep, which are relative to dir.
func removeOthers(dir string, keep map[string]bool) error {
	if len(keep) == 0 {
		return errors.New("none of the wanted modules is there")
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".ko" {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil && !keep[name] {
			err = os.Remove(path)
		}
		return err
	})
}

// dependencies maps a module's path to the paths of all that it needs
// (modules.dep(5), which has the closure).
type dependencies map[string][]string

func parseDependencies(text string) dependencies {
	all := make(dependencies)
	for line := range strings.Lines(text) {
		if path, needs, ok := strings.Cut(line, ":"); ok {
			all[path] = strings.Fields(needs)
		}
	}
	return all
}

// closure is the paths of the wanted modules and of what they need.
func (d dependencies) closure(wanted []string) map[string]bool {
	keep := make(map[string]bool)
	for path, needs := range d {
		if slices.ContainsFunc(wanted, func(w string) bool { return isModule(path, w) }) {
			keep[path] = true
			for _, n := range needs {
				keep[n] = true
			}
		}
	}
	return keep
}

// isModule says whether a module is the named one, or in the directory named. A
// hyphen and an underscore are one in module names.
func isModule(path, want string) bool {
	if strings.HasPrefix(path, "kernel/"+want+"/") {
		return true
	}
	name := strings.TrimSuffix(filepath.Base(path), ".ko")
	return strings.ReplaceAll(name, "-", "_") == want
}
