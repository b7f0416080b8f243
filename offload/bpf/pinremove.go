package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// RemoveFlows ends everything that is pinned in a directory, of whatever version, and takes our programs off the devices of
// the calling thread's network namespace: offloaded flows end, their next packets find no socket. It returns a line for
// each thing that it removed. dir may be "" or not exist.
func RemoveFlows(dir string) (removed []string, err error) {
	var errs []error
	qdiscs := make(map[int]bool)
	if dir != "" {
		qdiscs = markedQdiscs(dir)
		removed, err = removePins(dir)
		errs = append(errs, err)
	}
	filters, err := removeFilters("", qdiscs)
	return append(removed, filters...), errors.Join(append(errs, err)...)
}

// markedQdiscs is on which devices clsact is ours, by what is pinned.
func markedQdiscs(dir string) map[int]bool {
	marks, _ := filepath.Glob(filepath.Join(dir, "*", pinsLinks, clsactMark.String()+"-*"))
	qdiscs := make(map[int]bool)
	for _, m := range marks {
		if _, index, ok := parseLinkName(filepath.Base(m)); ok {
			qdiscs[index] = true
		}
	}
	return qdiscs
}

// removePins removes every set of pins below dir. Each gets another name first, so that nobody adopts the rest of it.
func removePins(dir string) (removed []string, err error) {
	names, err := pinnedNames(dir)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	if ok, err := onBPFFS(dir); err != nil || !ok {
		return nil, err
	}
	unlock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var errs []error
	for _, name := range names {
		set := filepath.Join(dir, name)
		if layout, ok := strings.CutPrefix(name, pinsReady); ok {
			gone := filepath.Join(dir, pinsGone+layout)
			if err := os.Rename(set, gone); err != nil {
				errs = append(errs, err)
				continue
			}
			set = gone
		} else if !strings.HasPrefix(name, pinsNew) && !strings.HasPrefix(name, pinsGone) {
			continue
		}
		did, err := removePinned(set)
		removed, errs = append(removed, did...), append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// removePinned removes one set of pins: first the links, so that no packet meets half of it.
func removePinned(set string) (removed []string, err error) {
	links := filepath.Join(set, pinsLinks)
	names, err := pinnedNames(links)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range names {
		did, err := removePinnedLink(filepath.Join(links, name))
		if did != "" {
			removed = append(removed, did)
		}
		errs = append(errs, err)
	}
	errs = append(errs, removeEmpty(links))
	names, err = pinnedNames(set)
	errs = append(errs, err)
	for _, name := range names {
		if name == pinsLinks {
			continue
		}
		did, err := removePinnedMap(filepath.Join(set, name))
		if did != "" {
			removed = append(removed, did)
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(append(errs, removeEmpty(set))...)
}

func removeEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removePinnedLink detaches a link, which may sit on a device that has gone to another namespace.
func removePinnedLink(path string) (did string, err error) {
	name := filepath.Base(path)
	if hook, index, ok := parseLinkName(name); ok && hook == clsactMark {
		return "", removeEmpty(path)
	} else if ok {
		did = fmt.Sprintf("program at %s of device %d", hook, index)
	} else {
		did = "link " + name
	}
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return "", errors.Join(fmt.Errorf("load link %s: %w", name, err), os.Remove(path))
	}
	defer l.Close()
	if err := l.Detach(); err != nil && !errors.Is(err, link.ErrNotSupported) {
		return "", fmt.Errorf("detach link %s: %w", name, err)
	}
	return did, os.Remove(path)
}

func removePinnedMap(path string) (did string, err error) {
	name := filepath.Base(path)
	did = "map " + name
	if m, err := ebpf.LoadPinnedMap(path, nil); err == nil {
		did = fmt.Sprintf("map %s (%s of %d)", name, m.Type(), m.MaxEntries())
		_ = m.Close()
	}
	return did, os.Remove(path)
}
