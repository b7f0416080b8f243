package bpf

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// UnmountBPFFS removes the directory that MountBPFFS gave to the calling thread's network namespace, and unmounts the
// bpffs when nothing else is in it and nobody else has mounted it. What is still pinned stays, without an error.
func UnmountBPFFS(stateDir string) (unmounted bool, err error) {
	at := bpffsPath(stateDir)
	unlock, err := lockDir(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer unlock()
	if mounted, err := onBPFFS(at); !mounted {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return false, err
	}
	ns, err := currentNetNS()
	if err != nil {
		return false, err
	}
	defer ns.Close()
	if err := os.Remove(filepath.Join(at, ns.dirName())); errors.Is(err, unix.ENOTEMPTY) {
		return false, nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("remove the directory of the network namespace: %w", err)
	}
	return unmountBPFFS(at)
}

func unmountBPFFS(at string) (bool, error) {
	left, err := os.ReadDir(at)
	if err != nil || slices.ContainsFunc(left, fs.DirEntry.IsDir) { // the kernel may put files of its own there
		return false, err
	}
	if ours, err := mountedByUs(at); err != nil || !ours {
		return false, err
	}
	if err := unix.Unmount(at, unix.UMOUNT_NOFOLLOW); err != nil {
		return false, fmt.Errorf("unmount %s: %w", at, err)
	}
	return true, os.Remove(at)
}

// mountedByUs asks the list of mounts; the last one at a path is the one that is seen.
func mountedByUs(at string) (ours bool, err error) {
	at, err = filepath.EvalSymlinks(at)
	if err == nil {
		at, err = filepath.Abs(at)
	}
	if err != nil {
		return false, err
	}
	f, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return false, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if point, source := parseMount(lines.Text()); point == at {
			ours = source == bpffsSource
		}
	}
	return ours, lines.Err()
}

// parseMount reads a line of mountinfo (proc_pid_mountinfo(5)): where, and what is mounted there.
func parseMount(line string) (point, source string) {
	before, after, _ := strings.Cut(line, " - ")
	left, right := strings.Fields(before), strings.Fields(after)
	if len(left) < 5 || len(right) < 2 {
		return "", ""
	}
	return unescapeMount.Replace(left[4]), right[1]
}

// unescapeMount undoes what the kernel does to paths there.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// PrivateMounts reports whether this process has a mount namespace that its parent, or the machine's (or container's) first
// process, has not: "ip netns exec" makes one, as do many service managers. A bpffs that is mounted there ends with the last
// process in it, and with the bpffs every offloaded flow. It is an error that this cannot be said.
func PrivateMounts() (bool, error) {
	own, err := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil {
		return false, fmt.Errorf("read the mount namespace: %w", err)
	}
	said := false
	for _, pid := range []int{1, os.Getppid()} {
		other, readErr := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		switch {
		case readErr != nil:
			err = fmt.Errorf("read the mount namespace of process %d: %w", pid, readErr)
		case other != own:
			return true, nil
		default:
			said = true
		}
	}
	if said {
		return false, nil
	}
	return false, err
}
