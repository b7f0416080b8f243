// Package bpf owns the programs and maps that carry handed-off flows at tcx and
// XDP, the guard over a VIP's other ports, and the diversion of first packets:
// their C sources, generated bindings, loading, pinning and attaching.
//
// It will never decide which flow is handed off, and never mirror by hand a type
// that C and Go share.
//
// There is no code here yet. It fills the seam below package offload as one of its
// paths.
//
// # Kernel
//
// BTF, and Linux 6.6 for tcx. The pins stand on a bpffs that the process mounts
// itself, keyed by network namespace.
package bpf
