// Package load owns the traffic of the performance suite: the servers that run on
// the backends and the clients that use them.
//
// Everything here shares the machine's cores with what is measured, so it is
// lean: an event loop on one thread for each client and for each server, raw
// non-blocking system calls that the Go scheduler does not see, no allocation
// and no collection while it runs (see [Quiet]). A receiver of bulk data has the
// kernel discard it (MSG_TRUNC, see tcp(7)); a sender copies, as senders do.
//
// It refuses to know what is between client and server, and to judge: it counts
// what was sent and received, from whom, and how long an answer took. A call that
// fails is remembered (Err) and never covered up by trying again; only a datagram
// that was lost is, counted.
//
// # Threads
//
// A loop's thread is inside the host that it is for, so that its sockets are
// that host's. What a loop shows while it runs is atomic, or behind Server.mu,
// a leaf.
//
// # Kernel
//
// Root in the namespaces' owner, for receive buffers beyond net.core.rmem_max.
package load
