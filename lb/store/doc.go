// Package store owns the desired state: which services there are, as one
// immutable Snapshot behind one atomic pointer, and the loop that makes the
// rest of the process, and through it the kernel, look like that snapshot.
//
// Sources hand it services (Source); one writer at a time validates them all
// and publishes the next snapshot. The data path reads Snapshot and never waits
// for a writer. Whoever realises the state (listeners, routes, kernel tables)
// registers a Programmer for one of the named phases; Run tells it what has
// changed, retries what failed, and keeps the status of every frontend.
//
// It refuses to do any I/O, to know any kernel object, and to publish a service
// that is faulty or takes what belongs to another.
//
// Lock order: Store.mu (the writer), then the lock of the loop, of the health
// queue or of the flow registry, none of which is held while another is taken.
// Programmers are called with no lock held.
//
// Every goroutine is started by Run, which waits for it.
package store
