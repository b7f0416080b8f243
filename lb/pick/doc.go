// Package pick owns the choice of a backend for one new flow: the client's own
// backend where the service has affinity, else whatever the service's scheduler
// says. It is where affinity tables live.
//
// Choosing (Pick) has no effect but to move a rotation on; taking the choice
// (Commit) counts the flow and remembers the client. Both may be repeated for a
// repeated SYN or INIT. It needs no socket and no clock.
//
// A remembered backend is used while new flows may go to it, also when it is of
// a lower priority or in another zone. One that may not take new flows, is full
// or has been tried for this flow is passed over at once, and forgotten for the
// one that takes its place. Tables belong to a service by its name and live as
// long as it does, also while it has no backends.
//
// A Picker is safe for use by several goroutines at once. Lock order: the mutex
// over the tables, then that of one affinity.Table.
package pick
