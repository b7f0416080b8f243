// Package sysctl owns the question where the kernel's settings can be written.
//
// That is below /proc/sys, but not in a container, where it is read-only unless the
// container is privileged. There the host's may be mounted elsewhere, and BATON_PROC_SYS
// says where. Settings of the network are those of the network namespace of the thread
// that opens the file, wherever it is mounted.
//
// It refuses to read or write: what a setting means, and what it was before, is known to
// who sets it.
package sysctl
