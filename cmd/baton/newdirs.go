package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// newDirs are directories that a start makes, the innermost first. One that is refused
// leaves none of them behind.
type newDirs []string

// findNewDirs finds which of dirs, and of those that they are in, are not there yet.
func findNewDirs(dirs ...string) (missing newDirs) {
	for _, dir := range dirs {
		for dir = absolute(dir); ; dir = filepath.Dir(dir) {
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				break
			}
			missing = append(missing, dir)
		}
	}
	return missing
}

// remove removes those that are empty: what is in the others is somebody's.
func (d newDirs) remove() {
	for _, dir := range d {
		_ = os.Remove(dir)
	}
}
