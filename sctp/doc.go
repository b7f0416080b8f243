// Package sctp owns SCTP associations: tracking them packet by packet, relaying
// them between client and backend on kernels that have no SCTP at all, multihomed
// ones included, and the mode that uses kernel sockets where the kernel has them.
//
// It will never know how a flow gets into the kernel, and leaves the bytes of a
// packet to package wire.
//
// There is no code here yet. Its seams exist: the choice of a backend (lb/pick)
// needs no socket and is idempotent for a repeated INIT, and flow records take
// their counters from any path.
package sctp
