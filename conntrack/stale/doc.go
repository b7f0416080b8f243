// Package stale owns the judgement which connection tracking entries of our
// services must not live on, and why: the backend is gone, the service is gone,
// or a service that had no backend has one now.
//
// It takes plain tuples and a description of what should be, and returns the
// entries that contradict it, each with a reason from a closed list. It will never
// talk to the kernel, so that every case is a row in a table.
//
// There is no code here yet. It fills the seam between the store's snapshots and
// package conntrack.
package stale
