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
//
//	made aside → published → set aside: another process has the path
type unixSocket struct {
	*net.UnixListener
	path string
	made fs.FileInfo // the file that is ours to remove
	once sync.Once

	mu    sync.Mutex // guards what follows
	aside string     // where it is besides path, or before; "" = nowhere
}

// listenUnix makes the socket file. It is made aside and renamed, so that
// nobody ever sees it with another mode; the file of a dead process is
// replaced, and one that is served is an ErrSocketInUse.
func listenUnix(path string) (_ *unixSocket, err error) {
	if err := checkUnused(path); err != nil {
		return nil, err
	}
	s, err := listenAside(path)
	if err != nil {
		return nil, err
	}
	if err := s.publish(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// listenAside makes the socket file where nobody looks for it.
func listenAside(path string) (_ *unixSocket, err error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket path %s is longer than %d bytes", path, maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of socket %s: %w", path, err)
	}
	aside := path + tempSuffix
	if err := removeIfThere(aside); err != nil {
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
	return &unixSocket{UnixListener: l, path: path, made: made, aside: aside}, nil
}

// publish puts the file in its place, in that of another one if there is one.
func (s *unixSocket) publish() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Rename(s.aside, s.path); err != nil {
		return fmt.Errorf("publish the socket: %w", err)
	}
	s.aside = ""
	return nil
}

// setAside gives the file a second name, under which it stays when another process
// takes its path.
func (s *unixSocket) setAside() (path string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path = fmt.Sprintf("%s.%d", s.path, os.Getpid())
	if err := removeIfThere(path); err != nil {
		return "", fmt.Errorf("remove an old socket: %w", err)
	}
	if err := os.Link(s.path, path); err != nil {
		return "", fmt.Errorf("set the socket aside: %w", err)
	}
	s.aside = path
	return path, nil
}

// keep takes setAside back, and with it the path, if another process that is no
// longer there had taken it.
func (s *unixSocket) keep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	aside := s.aside
	s.aside = ""
	if now, err := os.Lstat(s.path); aside != "" && (err != nil || !os.SameFile(now, s.made)) {
		return os.Rename(aside, s.path)
	}
	return removeIfThere(aside)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); path != "" && err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
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

// Close stops to listen and removes the file by both its names, unless somebody has
// replaced it.
func (s *unixSocket) Close() (err error) {
	s.once.Do(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		err = s.UnixListener.Close()
		// Processes of two containers may have one id, and so the same name aside.
		for _, path := range []string{s.aside, s.path} {
			now, statErr := os.Lstat(path)
			if statErr == nil && os.SameFile(now, s.made) {
				err = errors.Join(err, os.Remove(path))
			}
		}
	})
	return err
}
