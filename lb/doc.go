// Package lb owns the model: what a Service, a Frontend and a Backend are, the
// policies they carry, their defaults and their validation. It is pure: no I/O,
// no goroutines, no clock.
//
// A source (a file, the Kubernetes API, another program) makes Services out of
// what it reads, starting from Default; lb/store validates and publishes them;
// the data paths read them. Values handed to the store are never changed
// afterwards.
package lb
