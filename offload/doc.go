// Package offload owns the handoff: which live flows go into the kernel, when, what
// becomes of them there, and how they are found again after a restart.
//
// It satisfies the interfaces of package lb/handoff; lb and sctp never know it. It
// refuses to terminate a connection or to choose a backend, and it never takes a flow
// that the kernel cannot carry as well as userspace does: it says why, and the flow
// stays where it was.
//
// # The life of a handoff
//
//	policy.go, lease.go   a source port that nobody else will take, before the dial; then waiting until the flow is old and big enough
//	eligible.go           what both sockets have negotiated: may it leave at all?
//	try.go                watched by the kernel, stopped in userspace, handed to the thread, and resumed or given away
//	attempt.go, freeze.go the quiet moment: found, or made; then frozen, and forwarded from the next packet on
//	delta.go              what is added to every number from then on
//	path.go, events.go    who has closed or reset; how long nothing has moved; the end of the record
//	end.go, rst.go        ended by us, with a reset that both peers believe
//	note.go, adopt.go     what the next process must know, and finds
//	udp.go                sessions, which keep their sockets
//
// The order of steps in freeze.go is the proof that no byte is lost, and stands there.
// A flow is watched as late as possible: only one that is to be mirrored (a client
// without timestamps or SACK wants a backend's connection without them) or that must
// not move a byte in userspace (offload mode always) costs anything before its time.
//
// # After the handoff
//
// The kernel knows no socket of the flow any more. So its source port is reserved
// (reserve.go) or belongs to an address of ours, is lent to nobody else while the flow
// lives, and rests for a while afterwards; and connection tracking forgets the flow
// (tracking.go). When the process ends, the flow goes on; when it comes back, Kernel.All
// and the notes say what there is.
//
// # Goroutines
//
// Run looks after what is due. One goroutine for each attempt (128 at most) waits for
// the data path, which may block; all flows that stand still do so on one OS thread,
// which blocks for nothing. One goroutine follows the kernel's events, one ends flows
// that somebody wants to end. Prepare, Offer, Release, Carry and the methods of a path
// may be called on event loops: they do a few system calls at most.
//
// # Locks
//
// path.mu or lease.mu, then Offloader.mu, then wheel.mu or ports.mu. Under path.mu the
// locks of package flow may be taken, whose Counters come back to seen.mu or carrier.mu;
// under those only Offloader.alive is taken, for reading. routes.mu, thread.mu and
// graces.mu are leaves.
//
// # Kernel
//
// What package bpf needs. For the handoff itself TCP_REPAIR with CAP_NET_ADMIN (without
// a probe from Linux 4.18), SO_MEMINFO (4.12), TCP_TIMESTAMP (3.9); raw sockets with
// CAP_NET_RAW; net.ipv4.ip_local_reserved_ports, writable, where there are no source
// addresses of ours. Network namespace: that of the calling thread when New is called.
// Little-endian machines, as package bpf.
package offload
