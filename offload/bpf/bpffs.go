package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// bpffsSource is what /proc/mounts says of a bpffs that we have mounted.
const bpffsSource = "baton"

// bpffsPath is where the bpffs is mounted.
func bpffsPath(stateDir string) string { return filepath.Join(stateDir, "bpf") }

// MountBPFFS makes sure that a bpffs is mounted at "bpf" below the state directory, and returns a directory in it that is
// the calling thread's network namespace's alone. What is there already is adopted, whoever has mounted it; what network
// namespaces that are gone have left there is removed.
//
// The mount outlives the process unless the process has a mount namespace of its own: see [PrivateMounts]. The error wraps
// ErrPermission, ErrNotSupported, or says what is in the way.
func MountBPFFS(stateDir string) (dir string, err error) {
	at := bpffsPath(stateDir)
	defer func() {
		if err != nil {
			err = fmt.Errorf("mount bpffs at %s: %w", at, err)
		}
	}()
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockDir(stateDir)
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := mountBPFFS(at); err != nil {
		return "", err
	}
	ns, err := currentNetNS()
	if err != nil {
		return "", err
	}
	defer ns.Close()
	if err := removeGone(at, ns); err != nil {
		return "", err
	}
	dir = filepath.Join(at, ns.dirName())
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, nil
}

// mountBPFFS mounts one unless there is one.
func mountBPFFS(at string) error {
	if err := os.Mkdir(at, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	switch mounted, err := onBPFFS(at); {
	case err != nil || mounted:
		return err
	}
	left, err := os.ReadDir(at)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("the directory is not empty: there is %s", left[0].Name())
	}
	err = unix.Mount(bpffsSource, at, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700")
	if err != nil {
		_ = os.Remove(at) // it would be there for nothing
	}
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: needs CAP_SYS_ADMIN", ErrPermission)
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%s (Linux %s): %w", featureBPFFS.Name, featureBPFFS.Since, ErrNotSupported)
	case err != nil:
		return err
	}
	// What is mounted below it is nobody else's.
	if err := unix.Mount("", at, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mount private: %w", err)
	}
	return nil
}

// onBPFFS reports whether a directory is on a bpffs that can be written to.
func onBPFFS(path string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false, fmt.Errorf("statfs %s: %w", path, err)
	}
	switch {
	case st.Type != unix.BPF_FS_MAGIC:
		return false, nil
	case st.Flags&unix.ST_RDONLY != 0:
		return true, fmt.Errorf("the bpffs at %s is read-only", path)
	}
	return true, nil
}

// dirName keeps a namespace's pins apart. Inodes are used again, cookies never.
func (n *netNS) dirName() string {
	if n.cookie == 0 {
		return fmt.Sprintf("net-%d", n.inode)
	}
	return fmt.Sprintf("net-%d-%d", n.inode, n.cookie)
}

// removeGone removes what was pinned for a namespace that had the same inode before, and so is gone.
func removeGone(at string, ns *netNS) error {
	if ns.cookie == 0 {
		return nil
	}
	dirs, err := filepath.Glob(filepath.Join(at, fmt.Sprintf("net-%d-*", ns.inode)))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if filepath.Base(dir) == ns.dirName() {
			continue
		}
		if _, err := removePins(dir); err != nil {
			return err
		}
		if err := os.Remove(dir); err != nil {
			return err
		}
	}
	return nil
}

// lockDir keeps other processes out of a directory until it is unlocked.
func lockDir(path string) (unlock func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { f.Close() }, nil
}
