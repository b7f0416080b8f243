package main

import (
	"runtime"
	"sync"
)

// spareProcs is how many goroutines may run beside the event loops.
//
// A loop that waits in epoll_wait(2) keeps its right to run (a P, to Go's scheduler)
// until the scheduler takes it away, some 20 µs later. With as many Ps as loops there
// is then none that is idle, and the scheduler wakes a thread to look for work that
// is not there (handoffp in runtime/proc.go): thousands of futex(2) calls a second
// and a context switch for each.
const spareProcs = 2

// eventLoops is how many loops there are to be, one for each CPU that Go may use. It
// makes room for other goroutines beside them.
var eventLoops = sync.OnceValue(func() int {
	n := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(n + spareProcs)
	return n
})
