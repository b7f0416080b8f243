// Package conntrack owns the entries of the kernel's connection tracking: listing
// and filtering them, deleting and creating them, and following their events, in
// the network namespace of whoever calls.
//
// It will never decide which entry has to go: package stale knows that. It will
// never touch an entry that does not match protocol, address and port of what was
// asked for, and never hold the whole table in memory.
//
// What is there now deletes single entries: whoever takes a connection out of the
// kernel's sight has it forgotten. The rest is the seam between the store's cleanup
// phase and the kernel: whoever has just programmed backends calls it, through an
// interface of its own, to forget those that are gone. Without it no flow that
// userspace carries is wrong, because the kernel then translates nothing.
//
// # Kernel
//
// Where nothing is tracked all is refused with ErrNotSupported, and nothing is loaded.
// Else nf_conntrack and its netlink interface (nfnetlink, nf_conntrack_netlink), and
// CAP_NET_ADMIN.
package conntrack
