// Package offload owns the handoff: which live flows go into the kernel, when, on
// which path, what becomes of them there, and how they are found again after a
// restart.
//
// It satisfies the interfaces that the data path declares; lb and sctp never know
// it. It will never terminate a connection or choose a backend, and it will never
// keep a flow that it cannot carry as well as userspace does: it says why, and the
// flow stays where it was.
//
// There is no code here yet. The seam it fills is the Offloader of package relay,
// asked for a lease before a backend is dialled and offered the pair once both
// sides are established; until then a no-op stands there, and every flow is
// carried in userspace.
package offload
