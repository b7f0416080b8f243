// Package topology owns where the traffic of the performance suite flows: hosts in
// network namespaces, a client, a balancer and backends, the address that the
// balancer is reached at, and the services behind it.
//
// A [Topology] is a blueprint, [Hosts] the live thing. Hosts of several modes may
// exist side by side; they do not see each other.
//
// It refuses to know what balances.
//
// Locks: Hosts.mu (what is to be undone) is a leaf. Kernel: that of
// [github.com/baton-lb/baton/internal/testnet].
package topology
