// Package bpf owns Baton's BPF programs and their maps: the C sources (c/), the generated bindings, loading and attaching.
// The first is the guard, which decides for every VIP which of its ports answer and what answers there; the programs that
// carry handed-off flows and divert first packets join it here.
//
// It refuses to decide anything: which addresses are VIPs, what answers at a frontend, which flow is handed off. It never
// mirrors by hand a type that C and Go share.
//
// # The guard
//
// An sk_lookup program is asked before the kernel looks for a socket: once for each SYN, and for each datagram that no
// connected socket takes. It looks the destination up among the frontends; there it leaves the search to the kernel, gives
// the packet to a shared socket or to one that swallows it, or says that there is no socket. So it says for every other
// port of a VIP. The kernel then refuses as at a closed port: a reset, or ICMP port unreachable. Established connections,
// connected sockets, pings, protocols other than TCP and UDP, and addresses that are no VIPs are not affected.
//
// Other sk_lookup programs may be attached to the same namespace. A socket that one of them chooses wins over a refusal of
// the guard.
//
// Nothing is pinned. The guard lasts until Close or the end of the process, and with the process go the sockets that it
// gives packets to; docs/decisions/003-guard.md says what a crash leaves.
//
// # Building
//
// Go builds with the committed objects and needs no compiler. `make generate` makes them anew with clang-14, from the
// headers in c/ alone. The objects are for little-endian machines.
//
// # Locks
//
// Guard.mu is held over the system calls of one operation. It is a leaf.
//
// # Kernel
//
// Linux 5.9 for the guard, with CAP_BPF and CAP_NET_ADMIN (before 5.8 CAP_SYS_ADMIN); before 5.11 also CAP_SYS_RESOURCE,
// to lock as much memory as the tables take. Network namespace: that of the calling thread when AttachGuard is called.
package bpf
