package capture

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespace is a network namespace held by a descriptor. /proc/sys/net and /proc/thread-self/net show the namespace of
// the thread that opens a file there, so files have to be opened inside.
type namespace struct {
	handle netns.NsHandle
	inode  uint64 // tells namespaces apart that exist at the same time
}

// currentNamespace opens the calling thread's namespace.
func currentNamespace() (*namespace, error) {
	handle, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(handle), &st); err != nil {
		_ = handle.Close()
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	return &namespace{handle: handle, inode: st.Ino}, nil
}

func (n *namespace) Close() error { return n.handle.Close() }

// do runs f on a thread inside the namespace. Only a thread that is elsewhere needs to enter it (CAP_SYS_ADMIN).
func (n *namespace) do(f func() error) error {
	runtime.LockOSThread()
	inside := currentInode() == n.inode
	if inside {
		defer runtime.UnlockOSThread()
		return f()
	}
	runtime.UnlockOSThread()
	done := make(chan error)
	go func() { done <- n.enter(f) }()
	return <-done
}

// enter runs f inside. The thread of a goroutine that cannot bring it back ends with the goroutine.
func (n *namespace) enter(f func() error) error {
	runtime.LockOSThread()
	origin, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer origin.Close()
	if err := netns.Set(n.handle); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace: %w", err)
	}
	err = f()
	if netns.Set(origin) == nil {
		runtime.UnlockOSThread()
	}
	return err
}

// currentInode identifies the calling thread's namespace; 0 if it cannot be told.
func currentInode() uint64 {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return 0
	}
	return st.Ino
}
