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
// # Devices
//
// The programs that carry flows sit on every device of a network namespace but loopback, those without an Ethernet header,
// and ports of bridges and bonds (which have them already): as tcx links, before the programs of others, or where there is
// no tcx as filters of clsact, at the first priority that is free. Follow is level-triggered: an event of the kernel, or its
// loss, only says to look again. Nothing of others is removed: no link, no filter, no XDP program, and clsact only when it
// was ours and is empty. A device that moves to another namespace takes its links along; they are detached there.
//
// # Pins
//
// With a directory on a bpffs, maps and links outlive the process, killed or not. Maps are made aside and get their place by
// one rename, so a crash leaves all of them or none; a link is pinned right after it is attached, and ends with a process
// that dies between. The next process adopts: it opens the maps, and gives each link (or filter) its own program in place,
// so that no packet passes in between. Pins of another layout are left alone (ErrIncompatible). [MountBPFFS] makes a bpffs
// of our own: it stays for as long as its mount namespace.
//
// # The parking lot
//
// A gate that holds sends packets to a TAP, whose frames a goroutine keeps. Put back, a frame arrives anew at the device
// where it had come from: a program on the TAP's way out writes that device's number in the place of the source address, and
// one on its way in sends it there. So the gate decides again, and neither reverse path filters nor firewalls nor policy
// routing ever see the TAP. A lot is bounded in bytes and time, and lasts as long as its process.
//
// # Divert
//
// A tc program at the ingress of every device marks packets that a backend has sent and that belong to a connected socket of
// the network namespace, though they are addressed to somebody else: to the client whose address that socket speaks from.
// Rules of package transparent have what is marked delivered. On a port of a bridge it addresses the frame to the bridge
// besides. Nothing is pinned: it serves sockets, and ends with their process; a filter of clsact, which does not, is taken
// over by the next one.
//
// # Building
//
// Go builds with the committed objects and needs no compiler. `make generate` makes them anew with clang-14, from the
// headers in c/ alone. The objects are for little-endian machines.
//
// # Locks
//
// Guard.mu is held over the system calls of one operation; it is a leaf. So is Lot.mu, which is also held while
// frames are read and put back. Divert.mu comes after devices.mu.
//
// # Kernel
//
// Linux 5.9 for the guard, 5.2 to divert, with CAP_BPF and CAP_NET_ADMIN (before 5.8 CAP_SYS_ADMIN); before 5.11 also CAP_SYS_RESOURCE,
// to lock as much memory as the tables take. Network namespace: that of the calling thread when AttachGuard is called.
//
// Linux 5.17 for flows, with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; [HandoffFeatures] lists what they use. CAP_SYS_ADMIN to
// mount a bpffs. Network namespace: that of the calling thread in OpenFlows and OpenLot; a Flows that is open may be used
// from every thread, but for a thread of another namespace that takes CAP_SYS_ADMIN.
package bpf
