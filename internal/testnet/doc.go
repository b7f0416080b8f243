// Package testnet owns hosts that exist only for a test: each is a network
// namespace without a name, joined to others by veth pairs, dual stack from the
// first packet (no duplicate address detection to wait for).
//
//	star := testnet.NewStar(t, 3)
//	for _, b := range star.Backends {
//		b.Serve(8080, testnet.Named(b.Name()))
//	}
//	conn, err := star.Client.Dial("tcp", netip.AddrPortFrom(star.Backends[0].IP6, 8080))
//
// A namespace is held by a descriptor and by nothing else, so that a test that
// is killed leaves none behind; whatever the package starts ends with the test,
// through Cleanup, and is waited for.
//
// # What it refuses to do
//
// It never changes the namespace the process was started in, mounts nothing,
// writes nothing outside a namespace of its own, and knows no other package of
// the module. It does not shape traffic: [Port.Lose] and a link's MTU are all it does to packets.
//
// # Threads
//
// A namespace belongs to a thread. [Host.Do] locks the calling goroutine to its
// thread, moves that thread into the host and back. A goroutine started inside
// runs on some other thread, outside: create sockets inside Do, use them anywhere.
// A thread that cannot be brought back is thrown away.
//
// # Locks
//
// Net.mu (allocation of hosts and subnets), Server.mu (live connections) and
// Cmd.mu (lifecycle) are leaves: nothing else is locked under them.
//
// # Kernel
//
// Root (CAP_SYS_ADMIN, CAP_NET_ADMIN), network namespaces, veth, IPv4 and IPv6.
// [Host.Mute] also wants policy routing, [Port.Lose] clsact and BPF.
package testnet
