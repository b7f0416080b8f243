// Package nat owns the path that carries flows with what every netfilter kernel
// has: connection tracking entries that translate, and an nftables flowtable that
// short-cuts them.
//
// It will never take over a terminated TCP flow: two connections with sequence
// numbers of their own cannot become one translation.
//
// There is no code here yet. It fills the seam below package offload as one of its
// paths.
//
// # Kernel
//
// nf_tables, nf_nat, nf_conntrack_netlink; nf_flow_table for the short cut.
package nat
