package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// flowsLayout is the version of everything that is pinned: names, types, and what the maps hold. Raise it whenever a process
// with the new layout could not go on with flows of the old one; a test notices when shapes change.
const flowsLayout = 3

// ErrIncompatible says that flows of another version are pinned. It is wrapped with both ways out.
var ErrIncompatible = errors.New("flows of another version of Baton are in the kernel")

// What is below a directory of pins:
//
//	flows-2/           of layout 2, complete: it gets this name when all its maps are there
//	flows-2/NAME       a map
//	flows-2/links/     ingress-2, egress-2, xdp-2: the links of device 2; qdisc-2: its clsact is ours
//	new-2/             being made, or what a crash left of that
//	gone-2/            being removed, or what a crash left of that
//
// A bpffs takes no dots in names, so devices are written as numbers. Those stay when a device is renamed.
const (
	pinsReady = "flows-"
	pinsNew   = "new-"
	pinsGone  = "gone-"
	pinsLinks = "links"
)

func pinsDir(dir string) string { return filepath.Join(dir, fmt.Sprint(pinsReady, flowsLayout)) }

// linksDir is where links are pinned; "" = nothing is.
func linksDir(dir string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(pinsDir(dir), pinsLinks)
}

// pinnedMaps returns the maps that are pinned in dir, or makes and pins them as specs say. Adopted ones keep their
// capacity, and specs are changed to it. Half-made pins are removed first. The error may wrap ErrIncompatible.
func pinnedMaps(dir string, specs map[string]*ebpf.MapSpec) (maps map[string]*ebpf.Map, adopted bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("pin maps in %s: %w", dir, err)
		}
	}()
	switch ok, err := onBPFFS(dir); {
	case err != nil:
		return nil, false, err
	case !ok:
		return nil, false, errors.New("it is not on a bpffs")
	}
	unlock, err := lockDir(dir)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	there, err := tidyPins(dir)
	if err != nil {
		return nil, false, err
	}
	if there {
		maps, err = adoptMaps(pinsDir(dir), specs)
		return maps, true, err
	}
	maps, err = makeMaps(dir, specs)
	return maps, false, err
}

// tidyPins removes what is half made or half removed, and reports whether there are pins of our layout.
func tidyPins(dir string) (there bool, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case name == filepath.Base(pinsDir(dir)):
			there = true
		case strings.HasPrefix(name, pinsReady):
			return false, incompatible(fmt.Sprintf("layout %s, this version has %d", strings.TrimPrefix(name, pinsReady), flowsLayout))
		case strings.HasPrefix(name, pinsNew), strings.HasPrefix(name, pinsGone):
			if _, err := removePinned(filepath.Join(dir, name)); err != nil {
				return false, err
			}
		}
	}
	return there, nil
}

func incompatible(what string) error {
	return fmt.Errorf("%w (%s): run the version that they belong to, or end them with `baton cleanup`", ErrIncompatible, what)
}

func adoptMaps(dir string, specs map[string]*ebpf.MapSpec) (maps map[string]*ebpf.Map, err error) {
	maps = make(map[string]*ebpf.Map)
	defer func() {
		if err != nil {
			closeMaps(maps)
			maps = nil
		}
	}()
	for name, spec := range specs {
		m, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), nil)
		if errors.Is(err, fs.ErrNotExist) {
			return maps, incompatible("map " + name + " is missing")
		}
		if err != nil {
			return maps, fmt.Errorf("load map %s: %w", name, err)
		}
		maps[name] = m
		spec.MaxEntries = m.MaxEntries()
		if err := spec.Compatible(m); err != nil {
			return maps, incompatible(fmt.Sprintf("map %s: %v", name, err))
		}
	}
	return maps, nil
}

// makeMaps makes all of them aside and publishes them by one rename.
func makeMaps(dir string, specs map[string]*ebpf.MapSpec) (maps map[string]*ebpf.Map, err error) {
	aside := filepath.Join(dir, fmt.Sprint(pinsNew, flowsLayout))
	maps = make(map[string]*ebpf.Map)
	defer func() {
		if err != nil {
			closeMaps(maps)
			maps = nil
			_, undone := removePinned(aside)
			err = errors.Join(err, undone)
		}
	}()
	if err := os.MkdirAll(filepath.Join(aside, pinsLinks), 0o700); err != nil {
		return maps, err
	}
	for name, spec := range specs {
		m, err := ebpf.NewMap(spec)
		if err != nil {
			return maps, fmt.Errorf("make map %s: %w", name, err)
		}
		maps[name] = m
		if err := m.Pin(filepath.Join(aside, name)); err != nil {
			return maps, fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	return maps, os.Rename(aside, pinsDir(dir))
}

func closeMaps(maps map[string]*ebpf.Map) {
	for _, m := range maps {
		_ = m.Close() // of a descriptor
	}
}

// pinnedNames lists a directory's entries, links and all, in order.
func pinnedNames(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names, err
}
