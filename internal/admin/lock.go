package admin

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld is wrapped when another instance holds the lock.
var ErrHeld = errors.New("an instance runs in this network namespace already")

// lockName is an abstract unix socket address (unix(7)): it belongs to the
// network namespace, needs no directory, and vanishes with its process, so that
// it can never be stale.
const lockName = "@baton/instance"

// lockAnswer bounds how long the holder is waited for.
const lockAnswer = time.Second

// Holder is who holds the instance lock of a network namespace.
type Holder struct {
	PID      int    `json:"pid"`
	Socket   string `json:"socket,omitempty"`   // of its API
	Config   string `json:"config,omitempty"`   // the file it serves
	StateDir string `json:"stateDir,omitempty"` //
}

func (h Holder) String() string {
	s := fmt.Sprintf("pid %d", h.PID)
	if h.Socket != "" {
		s += fmt.Sprintf(" (socket %s)", h.Socket)
	}
	return s
}

// HeldError says who holds the lock. It is ErrHeld.
type HeldError struct{ Holder Holder }

func (e *HeldError) Error() string {
	return fmt.Sprintf("%s already runs in this network namespace", e.Holder)
}

// Is makes the error an ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Lock is the right to be the one instance of a network namespace, the one that
// the thread was in which acquired it.
type Lock struct {
	l    *net.UnixListener
	info []byte
	wg   sync.WaitGroup
}

// AcquireLock takes the lock, and from then on tells whoever asks what info
// says; the pid is filled in. When somebody else has it the error is a
// *HeldError, which wraps ErrHeld.
func AcquireLock(info Holder) (*Lock, error) {
	info.PID = os.Getpid()
	line, err := json.Marshal(info)
	if err != nil {
		return nil, fmt.Errorf("describe the instance: %w", err)
	}
	for range 10 {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: lockName, Net: "unix"})
		if err == nil {
			k := &Lock{l: l, info: append(line, '\n')}
			k.wg.Go(k.answer)
			return k, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return nil, fmt.Errorf("take the instance lock: %w", err)
		}
		h, ok, err := FindHolder()
		if err != nil {
			return nil, fmt.Errorf("ask who holds the instance lock: %w", err)
		}
		if ok {
			return nil, &HeldError{h}
		}
		// It went away between the two: try again.
	}
	return nil, fmt.Errorf("take the instance lock: %w", unix.EADDRINUSE)
}

// lockBacklog is how many may wait for an answer of the holder.
const lockBacklog = 128

// InheritLock takes the lock over from the process that f comes from. Once that one
// has closed its own, nobody sees it any more. f stays the caller's.
func InheritLock(f *os.File, info Holder) (*Lock, error) {
	info.PID = os.Getpid()
	line, err := json.Marshal(info)
	if err != nil {
		return nil, fmt.Errorf("describe the instance: %w", err)
	}
	any, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("take the instance lock over: %w", err)
	}
	l, ok := any.(*net.UnixListener)
	if !ok || l.Addr().String() != lockName {
		return nil, errors.Join(fmt.Errorf("take the instance lock over: %s is none", any.Addr()), any.Close())
	}
	l.SetUnlinkOnClose(false)
	// Whoever listens last is who connects see as their peer (unix_listen).
	if err := listenAgain(l); err != nil {
		return nil, errors.Join(fmt.Errorf("take the instance lock over: %w", err), l.Close())
	}
	k := &Lock{l: l, info: append(line, '\n')}
	k.wg.Go(k.answer)
	return k, nil
}

func listenAgain(l *net.UnixListener) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var listenErr error
	err = raw.Control(func(fd uintptr) { listenErr = unix.Listen(int(fd), lockBacklog) })
	return errors.Join(err, listenErr)
}

// File is a copy of the lock's socket, for the process that is to have the lock.
func (k *Lock) File() (*os.File, error) { return k.l.File() }

// Reclaim makes this process the one that is seen to hold the lock again, after
// another one has taken it over and is no longer there.
func (k *Lock) Reclaim() error { return listenAgain(k.l) }

// answer tells everybody who connects who we are.
func (k *Lock) answer() {
	for {
		c, err := k.l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: the peer sees our pid all the same
			time.Sleep(10 * time.Millisecond)
			continue
		}
		c.SetWriteDeadline(time.Now().Add(lockAnswer))
		c.Write(k.info)
		c.Close()
	}
}

// Close gives the lock back. It may be called more than once.
func (k *Lock) Close() error {
	err := k.l.Close()
	k.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// FindHolder asks who holds the lock of this network namespace. Of a holder
// that does not answer (it is stopped, or out of descriptors) only the pid is
// known: the kernel says it.
func FindHolder() (h Holder, ok bool, err error) {
	c, err := net.DialTimeout("unix", lockName, lockAnswer)
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return Holder{}, false, nil
	case errors.Is(err, unix.EAGAIN): // its backlog is full: it has stopped to answer
		return Holder{}, true, nil
	case err != nil:
		return Holder{}, false, err
	}
	defer c.Close()
	pid, err := peerPID(c.(*net.UnixConn))
	if err != nil {
		return Holder{}, false, err
	}
	c.SetReadDeadline(time.Now().Add(lockAnswer))
	line, err := bufio.NewReaderSize(c, 4096).ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(line, &h)
	}
	if err != nil {
		h = Holder{}
	}
	h.PID = pid
	return h, true, nil
}

// peerPID is who listened, or who connected.
func peerPID(c syscall.Conn) (int, error) {
	cred, err := peerCred(c)
	if err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

// peerCred asks for SO_PEERCRED.
func peerCred(c syscall.Conn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, credErr); err != nil {
		return nil, fmt.Errorf("read the peer's credentials: %w", err)
	}
	return cred, nil
}
