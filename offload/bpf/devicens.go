package bpf

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// netNS is a network namespace. It is held by a descriptor, so that work can be done in it from every thread: the kernel
// takes a device's number in the namespace of the thread that asks.
type netNS struct {
	file   *os.File
	inode  uint64 // unique among the namespaces that live
	cookie uint64 // unique since the machine was started; 0 = the kernel gives none (before Linux 5.14)
}

const threadNetNS = "/proc/thread-self/ns/net"

// currentNetNS opens the namespace of the calling thread.
func currentNetNS() (*netNS, error) {
	file, err := os.Open(threadNetNS)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	n := &netNS{file: file}
	if n.inode, err = inode(threadNetNS); err == nil {
		n.cookie, err = netNSCookie()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return n, nil
}

func inode(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("stat %s: %w", path, err)
	}
	return st.Ino, nil
}

// netNSCookie asks a socket for its namespace's.
func netNSCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("make a socket: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		return 0, fmt.Errorf("read the network namespace's cookie: %w", err)
	}
	return cookie, nil
}

// do runs f on a thread inside. That is the calling one, if it is there already.
func (n *netNS) do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := inode(threadNetNS)
	if err != nil {
		return err
	}
	if here == n.inode {
		return f()
	}
	result := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with its goroutine.
		runtime.LockOSThread()
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		result <- f()
	}()
	return <-result
}

func (n *netNS) Close() error { return n.file.Close() }
