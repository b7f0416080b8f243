package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrSocketInUse is wrapped when a process listens on the socket already.
var ErrSocketInUse = errors.New("socket is in use")

// maxSocketPath leaves room in sun_path (unix(7)) for the temporary name.
const maxSocketPath = 107 - len(tempSuffix)

const tempSuffix = ".new"

// unixSocket is a listener on a socket file of mode 0660.
type unixSocket struct {
	*net.UnixListener
	path string
	made fs.FileInfo // the file that is ours to remove
	once sync.Once
}

// listenUnix makes the socket file. It is made aside and renamed, so that
// nobody ever sees it with another mode; the file of a dead process is
// replaced, and one that is served is an ErrSocketInUse.
func listenUnix(path string) (_ *unixSocket, err error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket path %s is longer than %d bytes", path, maxSocketPath)
	}
	if err := checkUnused(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of socket %s: %w", path, err)
	}
	aside := path + tempSuffix
	if err := os.Remove(aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove an unfinished socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: aside, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close(), os.Remove(aside))
		}
	}()
	if err := os.Chmod(aside, 0o660); err != nil {
		return nil, fmt.Errorf("set the mode of the socket: %w", err)
	}
	made, err := os.Lstat(aside)
	if err != nil {
		return nil, fmt.Errorf("look at the socket: %w", err)
	}
	if err := os.Rename(aside, path); err != nil {
		return nil, fmt.Errorf("publish the socket: %w", err)
	}
	return &unixSocket{UnixListener: l, path: path, made: made}, nil
}

// checkUnused is nil when path is free or the socket of a process that is gone.
func checkUnused(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at socket %s: %w", path, err)
	}
	if fi.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket: remove it, or name another", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look whether %s is served: %w", path, err)
	}
	defer c.Close()
	if pid, err := peerPID(c.(syscall.Conn)); err == nil {
		return fmt.Errorf("%s: %w by pid %d", path, ErrSocketInUse, pid)
	}
	return fmt.Errorf("%s: %w", path, ErrSocketInUse)
}

// Close stops to listen and removes the file, unless somebody has replaced it.
func (s *unixSocket) Close() (err error) {
	s.once.Do(func() {
		err = s.UnixListener.Close()
		now, statErr := os.Lstat(s.path)
		if statErr == nil && os.SameFile(now, s.made) {
			err = errors.Join(err, os.Remove(s.path))
		}
	})
	return err
}
