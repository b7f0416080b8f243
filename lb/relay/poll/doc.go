// Package poll owns the event loop under the userspace data path: one
// goroutine waits in epoll_wait(2) for many sockets and calls the handler of
// each that is ready. A flow lives on one loop, so that its state needs no
// lock; everybody else talks to it with Post.
//
// Go's own poller would cost a goroutine (and its stack) for each direction of
// each connection and a scheduler round trip for each wake-up. Here an idle
// connection costs its state and nothing else.
//
// Sockets are edge-triggered: a handler must read or write until EAGAIN, or
// come back with Soon. Listeners are level-triggered and exclusive
// (EPOLLEXCLUSIVE, Linux 4.5), so that several loops share one of them and one
// connection wakes one loop.
//
// It refuses to own descriptors: who opened one closes it, after Remove.
package poll
