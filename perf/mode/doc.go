// Package mode owns the ways from the client to a backend that the performance
// suite compares: direct routing, the kernel's own NAT, Baton, and other proxies.
// Each is a [Mode]; a new one is a type in a file of its own and a line in [All].
//
// A mode is started on the balancer of a topology and serves all services of a
// protocol, or none. It says where a client must send to, whom backends see, and
// what its own counters have counted, from which the suite concludes that traffic
// took the way it claims. Others' proxies are configured as their own documents
// advise for speed: no logging, SO_REUSEPORT, a worker for each CPU.
//
// It refuses to make traffic, and installs nothing: what is not there is an error
// that wraps [ErrUnavailable] and names the package.
//
// Programs run inside the balancer's namespace, are ended by their process id, and
// die with this process.
//
// Locks: output.mu is a leaf. Kernel: nf_tables with NAT for [NFTables].
package mode
