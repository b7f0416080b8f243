// Package handoff owns the words in which a data path and an offloader talk about one flow: how a flow asks to leave userspace,
// what both may do with its sockets meanwhile, and who carries it afterwards. The relay speaks them on one side, package offload
// on the other; neither knows the other.
//
// It refuses to do anything: there is no I/O, and no goroutine. It says what must be true of whoever does.
//
// # TCP
//
//	Offloader.Prepare ── before a backend is dialled ──> Lease (or the reason why the flow stays)
//	Lease.Offer       ── both legs are established ──> the offloader may call, whenever it likes:
//	Pair.Stop         ── the bytes stand still, both descriptors are the caller's ──> Stopped
//	Pair.Moved        ── so many the caller has delivered meanwhile
//	Pair.Resume       ── not this time: the bytes go on
//	Pair.HandedOff    ── somebody else carries the flow: the relay forgets it without a FIN or a reset
//	Lease.Release     ── the flow has ended, or was never established
//
// # UDP
//
// A session keeps its socket when its datagrams take a way beside it: datagrams that come in fragments, and the ICMP errors
// of its backend, still need it. So nothing has to stop: Offloader.Carry opens the way, Carrier.Withdraw closes it, and at any
// moment between the session works without it.
package handoff
