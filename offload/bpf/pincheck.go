package bpf

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
)

// CheckFlows says whether the flows that are pinned for the calling thread's network namespace below a state directory could
// be adopted; the error then wraps ErrIncompatible. Nothing is changed, and the process that has them may be at work.
func CheckFlows(stateDir string) error {
	ns, err := currentNetNS()
	if err != nil {
		return err
	}
	defer ns.Close()
	dir := filepath.Join(bpffsPath(stateDir), ns.dirName())
	ready, err := filepath.Glob(filepath.Join(dir, pinsReady+"*"))
	if err != nil || len(ready) == 0 {
		return err
	}
	if _, err := os.Stat(pinsDir(dir)); errors.Is(err, fs.ErrNotExist) {
		return incompatible("layout " + filepath.Base(ready[0])[len(pinsReady):])
	}
	spec, err := loadFlow()
	if err != nil {
		return err
	}
	specs := maps.Clone(spec.Maps)
	delete(specs, flowMapFlowScratch)
	pinned, err := adoptMaps(pinsDir(dir), specs)
	closeMaps(pinned)
	return err
}
