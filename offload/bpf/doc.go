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
// # Flows
//
// A flow is a client's connection or session with a frontend, and the balancer's with a backend. The program knows it by
// the two tuples of packets that arrive (an element each), and keeps its state in a slot that C and Go share: the gate, and
// for each direction what is added to its numbers, what was seen, and what was carried. A note of the owner's choosing goes
// with it. c/flow.h is the ABI.
//
// The gate of a TCP flow says what becomes of its packets:
//
//	watch ── drain ── freeze ── forward ── reset
//	                               └───────┴──> stale
//
// Watch leaves them to the sockets and remembers the numbers. Drain holds data and FINs that were not let through before;
// acknowledgements pass, also those that come with data. Freeze holds everything. What is held is parked, or dropped if
// there is no lot. Forward rewrites packets and sends them out by the kernel's routes, asked anew every second. Reset
// answers with resets. A SYN at a flow that is over makes it stale: it is out of the new one's way at once. Userspace may
// set any gate from any other but stale. Before the program reads a gate that may hold it counts up, and again when all
// that follows is written down; so who sets the gate and then sees both counts equal reads what every decision under the
// earlier gate has left. Those packets have reached their sockets after a [Grace].
//
// Datagrams are forwarded at the gate forward, and left to their session's socket at any other; so are fragments, those
// with IP options or at their last hop, those that must be fragmented, and ICMP errors from either side.
//
// What cannot go on is never lost in silence. Who sent a packet that does not fit its way out, or a segment at its last
// hop, hears of it by ICMP, made of the packet itself and limited in rate. ICMP errors about what went on reach its sender
// as errors about what that had sent. Everything else is counted by reason ([FlowCount]): TCP in fragments or with IP
// options is dropped, as no stack knows the flow any more.
//
// The end of a flow is seen, not believed: a FIN counts when the other side has acknowledged just it, a reset when it has
// the number that its receiver expects. Payload counts once, by how far the highest number moves. What is told by events
// can be lost, but is in the state too.
//
// flow_ingress does all that. flow_egress drops what our stack still says on a forwarded flow, and takes from our SYN the
// options that the client's was without. flow_xdp sends on what needs nothing else, at devices that [Flows.AllowXDP] names;
// a packet that it passes comes to flow_ingress. All work on copies of the headers, and pure code changes those
// (c/rewrite.h, c/options.h, c/csum.h), so that tc and XDP differ in how the copies are put back and in nothing else.
// Checksums may be whole, still to be filled in by a device, or vouched for by a sum over all that was received.
//
// # Mode steer
//
// A packet of no flow that comes to a frontend of mode steer begins one, without any process ([Steer], and lb/steer/program
// for the words):
//
//	frontend ── who asks: sources ──> pool ── refuse, drop, to the stack, or
//	                                   │
//	     affinity, else a ticket, else the table ──> backend ──> both elements, and the packet goes on
//
// Both elements of such a flow hold all that is known of it; there is no slot and no note. Towards the backend its state is
// a word that changes by compare-and-swap only, and whoever changes it counts the flow at its backend and tells of it:
//
//	opening ── open ── half closed ── closed
//	   └────────┴───────────┴──> a SYN makes a closed one a new flow; what deletes a flow claims it first
//
// TCP is open, and counts, with the client's acknowledgement of the backend's answer; UDP with its first datagram. The
// element of the backend's answers is made first and only if nobody has its tuple: so addresses and ports are never taken
// twice, neither from a flow that was handed off. A client whose address cannot be kept there is masked, with one of the
// ports of [SteerOptions]; when those are used up, flows that are closed give theirs. A flow for which there is no room is
// dropped. What a process wants deleted, reset or added to tickets it orders by a run of a small program (c/order.h), which
// meets the same words as packets do.
//
// The address of a client is kept only where answers come back here: not if the backend is the client, nor if it is its
// neighbour on the link that it came in by. Datagrams in fragments go on from the first; fragments that overtake it, TCP
// packets of no flow, and all packets at a host that does not forward are the stack's. Of a masked client a datagram that
// does not fit its way out is dropped even if it might be fragmented, and the client told.
//
// # Devices
//
// The programs that carry flows sit on every device of a network namespace but loopback, those without an Ethernet header,
// and ports of bridges and bonds (which have them already): as tcx links, before the programs of others, or where there is
// no tcx as filters of clsact, at the first priority that is free. Follow is level-triggered: an event of the kernel, or
// its loss, only says to look again. Nothing of others is removed: no link, no filter, no XDP program, and clsact only when
// it was ours and is empty. A device that moves to another namespace takes its links along; they are detached there.
//
// # Pins
//
// With a directory on a bpffs, maps and links outlive the process, killed or not. Maps are made aside and get their place
// by one rename, so a crash leaves all of them or none; a link is pinned right after it is attached, and ends with a
// process that dies between. The next process adopts: it opens the maps, and gives each link (or filter) its own program in
// place, so that no packet passes in between. Pins of another layout are left alone (ErrIncompatible). [MountBPFFS] makes a
// bpffs of our own: it stays for as long as its mount namespace.
//
// # The parking lot
//
// A gate that holds sends packets to a TAP, whose frames a goroutine keeps. Put back, a frame arrives anew at the device
// where it had come from: a program on the TAP's way out writes that device's number in the place of the source address,
// and one on its way in sends it there. So the gate decides again, and neither reverse path filters nor firewalls nor
// policy routing ever see the TAP. A lot is bounded in bytes and time, and lasts as long as its process.
//
// # Divert
//
// A tc program at the ingress of every device marks packets that a backend has sent and that belong to a connected socket
// of the network namespace, though they are addressed to somebody else: to the client whose address that socket speaks
// from. Rules of package transparent have what is marked delivered. On a port of a bridge it addresses the frame to the
// bridge besides. Nothing is pinned: it serves sockets, and ends with their process; a filter of clsact, which does not, is
// taken over by the next one.
//
// # Building
//
// Go builds with the committed objects and needs no compiler. `make generate` makes them anew with clang-14, from the
// headers in c/ alone. The objects are for little-endian machines.
//
// # Locks
//
// Guard.mu is held over the system calls of one operation; it is a leaf. So is Steer.mu, which comes after Flows.mu. So is Lot.mu, which is also held
// while frames are read and put back. Divert.mu comes after devices.mu.
//
// # Kernel
//
// Linux 5.9 for the guard, 5.2 to divert, with CAP_BPF and CAP_NET_ADMIN (before 5.8 CAP_SYS_ADMIN); before 5.11 also
// CAP_SYS_RESOURCE, to lock as much memory as the tables take. Network namespace: that of the calling thread when
// AttachGuard is called.
//
// Linux 5.17 for flows (5.18 for those in XDP), with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; [HandoffFeatures] lists what
// they use. CAP_SYS_ADMIN to mount a bpffs. Network namespace: that of the calling thread in OpenFlows and OpenLot; a Flows
// that is open may be used from every thread, but for a thread of another namespace that takes CAP_SYS_ADMIN.
package bpf
