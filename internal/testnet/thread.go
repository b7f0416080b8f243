package testnet

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// inNamespace runs f with the calling goroutine's thread inside ns. f may end its
// goroutine (a failing test does); the thread is brought back all the same. When
// that fails it panics with the goroutine still locked to the thread, so that the
// runtime ends both: nothing else may run there.
func inNamespace(ns netns.NsHandle, f func()) error {
	runtime.LockOSThread()
	origin, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the thread's network namespace: %w", err)
	}
	defer origin.Close()
	if err := netns.Set(ns); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace: %w", err)
	}
	defer func() {
		if err := netns.Set(origin); err != nil {
			panic(fmt.Sprintf("testnet: leave network namespace: %v", err))
		}
		runtime.UnlockOSThread()
	}()
	f()
	return nil
}

// onOwnThread runs f on a thread that ends with it, for f that changes the
// thread for good.
func onOwnThread(f func()) error {
	done := make(chan bool, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// But not the process's first one. As long as this waits there, nothing
			// else can.
			defer runtime.UnlockOSThread()
			done <- onOwnThread(f) == nil
			return
		}
		returned := false
		defer func() { done <- returned }()
		f()
		returned = true
	}()
	if !<-done {
		return fmt.Errorf("the thread's function did not return")
	}
	return nil
}
