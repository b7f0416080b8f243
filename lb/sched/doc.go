// Package sched owns the choice of a backend for a new flow: round-robin,
// least-connections, random (best of two), source-hash and Maglev, all of them
// with weights, priorities, zones and limits.
//
// It is pure: no I/O, no clock, no goroutines, and no say in what becomes of
// the choice. Counting the flow (flow.Record.Assign) is a second step, so that
// a choice made twice for a repeated SYN or INIT costs nothing.
//
// A Scheduler is made anew for every change of its backends and is safe for
// use by several goroutines at once; Pick does not allocate. Round-robin and
// least-connections share a rotation (with weights under a mutex that no other
// lock is taken in); the rest of a Scheduler does not change.
//
// # Who is chosen from
//
// Candidates are the backends that may take new flows (Backend.TakesNew). When
// all of those are unhealthy, all are used: a probe that fails everywhere says
// more about the probe. When there are none at all, the ones that are
// terminating but still serve are used, as Kubernetes does.
//
// The candidates of the lowest Priority are used, and among them those in the
// balancer's own zone, as long as one of them can take the flow; one that is at
// its limit, or that this flow has tried, cannot. Then come the others of that
// priority, then the next priority.
//
// A backend that comes back may be ramping (Backend.Ramp): it counts with less
// than its weight until it is warm. Least-connections needs that most: to it an
// idle backend is the best one, and would get every flow until it has caught up.
//
// # Hashes
//
// Source-hash takes the client's address (not its port), Maglev its address
// and port. The hash is the same in every process and on every host, and does
// not depend on the order in which backends are listed, so that balancers side
// by side choose alike. Its key is public: it spreads clients, it does not
// resist one that chooses its addresses in order to meet one backend.
package sched
