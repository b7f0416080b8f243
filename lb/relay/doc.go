// Package relay owns the userspace data path. For TCP it takes connections at
// frontends, dials a backend for each, moves the bytes, and ends both sides in
// the way that one of them ended. For UDP it keeps a session for each client of a
// frontend, with a socket of its own to the backend, until nothing comes for a
// while. It declares what it needs of others: who
// guards the addresses of frontends (Guard). Who may take flows over speaks the words
// of lb/handoff.
//
// Connections live on a few event loops (lb/relay/poll), each on the one that
// accepted it or the least loaded one: a flow's state is touched by that loop
// only and needs no lock. Descriptors are raw; Go's own poller does not know
// them.
//
//	accept.go    a client connects: which frontend, may it, is there room
//	header.go    acceptProxy: who the client really is
//	dial.go      choosing a backend, reaching it, trying the next one
//	flow.go      one connection pair, its timers and its end
//	abort.go     passing a reset on, after the bytes before it
//	idle.go      ending what stands still
//	pause.go     telling a peer that pauses from one that is lost
//	listen.go    listeners follow the store's frontends
//	vips.go      routes follow their addresses
//	answers.go   what the guard is told: which frontends answer, with what, and whom
//	inside.go    who is a client of the cluster itself, as this host is
//	shared.go    the sockets that many frontends share
//	vips.go      so do routes; leaving.go: not before the last connection
//	removed.go   flows of backends that have gone
//	transparent.go  which address of a client its backend sees; udptransparent.go: whose
//	                sockets share a client's port
//	offload.go   what an Offloader is asked, and what it has done meanwhile
//	pair.go      a flow stands still, goes on, or is another's
//	adopt.go     connections that the kernel has carried since before this process
//
//	udp.go         datagrams come to a frontend: whose are they
//	udpopen.go     a session begins: choosing a backend, reaching it
//	udpsend.go     datagrams both ways, and what the network says of them
//	udpsession.go  what a session is, its time and its end
//	udpfollow.go   sessions follow their service: they move, or end
//	udproom.go     who makes room; udpgroup.go: the sessions by service and age
//	udplisten.go   sockets follow the store's UDP frontends
//	udpcarry.go    a way for their datagrams beside their sockets
//	udpsaved.go    sessions outlive the process; udpkept.go: their carriers do too
//	udpstray.go    a session on another loop than its client's datagrams
//
// It refuses to choose backends (lb/pick), to know configuration files, and to
// log per connection: flows are records in internal/flow, drops are counted
// there by reason.
//
// Lock order: Relay.mu (control plane), then flow.Registry's locks, then
// tcpFlow.mu; Relay.mu, then savedSessions.file, then savedSessions.mu. A loop
// never waits for Relay.mu or savedSessions.file.
//
// Kernel needs: Linux 4.5 (EPOLLEXCLUSIVE); binding to low ports wants
// CAP_NET_BIND_SERVICE.
package relay
