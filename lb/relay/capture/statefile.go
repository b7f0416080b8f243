package capture

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// stateFile keeps settings from before across a crash. Without a path it keeps them in memory.
type stateFile struct {
	path   string
	memory []setting
}

// newStateFile gives the file of a namespace: instances in several namespaces may share a state directory.
func newStateFile(dir string, ns *namespace) stateFile {
	if dir == "" {
		return stateFile{}
	}
	return stateFile{path: filepath.Join(dir, fmt.Sprintf("arp-%d.json", ns.inode))}
}

// load reads the settings; none if there is no file.
func (f *stateFile) load() (settings []setting, err error) {
	if f.path == "" {
		return f.memory, nil
	}
	b, err := os.ReadFile(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read previous sysctls: %w", err)
	}
	if err := json.Unmarshal(b, &settings); err != nil {
		return nil, fmt.Errorf("read previous sysctls from %s: %w", f.path, err)
	}
	return settings, nil
}

// save replaces the file by one rename; without settings it removes it.
func (f *stateFile) save(settings []setting) (err error) {
	if f.path == "" {
		f.memory = settings
		return nil
	}
	if len(settings) == 0 {
		if err := os.Remove(f.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove previous sysctls: %w", err)
		}
		return nil
	}
	b, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		return fmt.Errorf("write previous sysctls: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o750); err != nil {
		return fmt.Errorf("write previous sysctls: %w", err)
	}
	aside := f.path + ".new"
	if err := os.WriteFile(aside, append(b, '\n'), 0o640); err != nil {
		return errors.Join(fmt.Errorf("write previous sysctls: %w", err), removeIfThere(aside))
	}
	if err := os.Rename(aside, f.path); err != nil {
		return errors.Join(fmt.Errorf("write previous sysctls: %w", err), removeIfThere(aside))
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
