package testvm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/baton-lb/baton/internal/cache"
)

// kernel is a bootable kernel in the cache.
type kernel struct {
	*cache.Entry
	name string // package and version, for people
}

// Files of a kernel's cache entry.
const (
	imageFile   = "vmlinuz"
	modulesFile = "modules.cpio"
)

func (k kernel) image() string   { return filepath.Join(k.Dir, imageFile) }
func (k kernel) modules() string { return filepath.Join(k.Dir, modulesFile) }

// openKernel gets a kernel from the cache, and into it if need be. What apt offers
// now decides which; where apt offers nothing, the one used last does.
func openKernel(ctx context.Context, kept *cache.Cache, version string, log *slog.Logger) (kernel, error) {
	k, err := offeredKernel(ctx, kept, version, log)
	if err == nil {
		return k, nil
	}
	log.Info("update apt's lists", "because", err)
	if updateErr := updateApt(ctx); updateErr == nil {
		k, err = offeredKernel(ctx, kept, version, log)
	} else {
		err = errors.Join(err, updateErr)
	}
	if err == nil || ctx.Err() != nil {
		return k, err
	}
	key, readErr := os.Readlink(filepath.Join(kept.Dir(), "linux-"+version))
	if readErr != nil {
		return kernel{}, err
	}
	log.Info("use the kernel of last time", "kernel", key, "because", err)
	e, err := kept.Get(key, func(string) error { return err })
	return kernel{Entry: e, name: key}, err
}

func offeredKernel(ctx context.Context, kept *cache.Cache, version string, log *slog.Logger) (kernel, error) {
	p, err := findKernel(ctx, version)
	if err != nil {
		return kernel{}, err
	}
	key := p.cacheKey()
	e, err := kept.Get(key, func(dir string) error {
		log.Info("fetch and unpack kernel", "package", p)
		return p.unpackKernel(ctx, dir)
	})
	if err != nil {
		return kernel{}, err
	}
	// For a day without apt's lists. Two processes that write it write the same.
	link := filepath.Join(kept.Dir(), "linux-"+version)
	_ = os.Remove(link)
	_ = os.Symlink(key, link)
	return kernel{Entry: e, name: p.String()}, nil
}

// recipe changes whenever unpackKernel would make something else of a package.
const recipe = "1"

func (p debPackage) cacheKey() string {
	h := sha256.Sum256([]byte(p.sha256 + "\n" + recipe + "\n" + strings.Join(wantedModules, "\n")))
	version := strings.Map(func(r rune) rune {
		if r == '/' || r == ':' {
			return '_'
		}
		return r
	}, p.version)
	return p.name + "_" + version + "_" + hex.EncodeToString(h[:8])
}

// unpackKernel makes a cache entry: the kernel, and an archive of its modules that
// can be part of an initramfs.
func (p debPackage) unpackKernel(ctx context.Context, dir string) error {
	work, err := os.MkdirTemp(filepath.Dir(dir), "unpack-")
	if err != nil {
		return fmt.Errorf("unpack %s: %w", p, err)
	}
	defer os.RemoveAll(work)
	deb, err := p.download(ctx, work)
	if err != nil {
		return err
	}
	root := filepath.Join(work, "root")
	if _, err := runTool(ctx, "", "dpkg-deb", "-x", deb, root); err != nil {
		return err
	}
	images, _ := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if len(images) != 1 {
		return fmt.Errorf("unpack %s: %d kernels in it", p, len(images))
	}
	if err := os.Rename(images[0], filepath.Join(dir, imageFile)); err != nil {
		return fmt.Errorf("unpack %s: %w", p, err)
	}
	release := strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	if err := archiveModules(ctx, root, release, filepath.Join(dir, modulesFile)); err != nil {
		return fmt.Errorf("unpack %s: %w", p, err)
	}
	return nil
}
