// Package transparent owns clientAddress: transparent below the relay. The relay speaks to a backend from its client's own
// address, so the answers are addressed to the client, and a host that forwards would forward them. Here is what has the
// kernel deliver them to the relay's sockets instead, and the judgement of where that can be right at all.
//
// # Delivery
//
// A BPF program on every device (offload/bpf, Divert) marks packets of backends that belong to a connected socket of this
// network namespace. Rules of ours send what is marked to a table of ours, in which everything is local:
//
//	64: from all fwmark 0x1000/0x1000 iif lo goto 66
//	65: from all fwmark 0x1000/0x1000 lookup 66066
//	66: from all nop
//
//	local default dev lo table 66066
//
// From there on the kernel finds the socket as it finds any other; nothing of the relay's is known to the program, and the
// sockets carry no mark. The mark must not decide where the host itself sends something, hence the first rule: the check of
// a packet's source (rp_filter, with src_valid_mark) asks for the way back as if the host sent, and would find its own
// peer local; and with fwmark_reflect answers of the kernel carry the mark of what they answer.
//
// The first address, then, that is seen by others: on a bridge of this host the answer of a backend to a client on the same
// bridge never comes to IP. The program sits on the ports too, and addresses such frames to the bridge.
//
// What the rules cost: with any rule beside the kernel's own three each route lookup walks the list. So they are there only
// while a service asks for them.
//
// # Judgement
//
// Table.Ask says whether answers will pass by here. Sure cases only are masked: see way.go. A way back that is
// missing all the same shows as dials that time out.
//
// # What it refuses to do
//
// It opens no socket of a flow and knows none. It touches no rule, route or table of others: its own rules and routes carry
// the protocol number Protocol. It changes no sysctl: rp_filter passes, accept_local and forwarding are not needed.
//
// # Locks
//
// Transparent.mu is held over the calls of one operation; the cache of routes has a lock of its own, a leaf.
//
// # Kernel
//
// Linux 5.2 (bpf_skc_lookup_tcp), 4.17 for the rules' protocol number; CAP_NET_ADMIN and CAP_BPF. Network namespace: that of the
// calling thread when Open or Cleanup is called.
package transparent
