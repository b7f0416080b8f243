/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Looking for the sockets of a network namespace (include/uapi/linux/bpf.h). */
#ifndef BATON_SOCKETS_H
#define BATON_SOCKETS_H

#include "helpers.h"

/* What may be read of a socket; of one that skc_lookup found not the type, protocol, mark
 * and priority. */
struct bpf_sock {
	__u32 bound_dev_if;
	__u32 family;
	__u32 type;
	__u32 protocol;
	__u32 mark;
	__u32 priority;
	__be32 src_ip4;
	__be32 src_ip6[4];
	__u32 src_port; /* host byte order */
	__be16 dst_port;
	__u16 pad;
	__be32 dst_ip4;
	__be32 dst_ip6[4];
	__u32 state;
	__s32 rx_queue_mapping;
};

/* The addresses and ports of a packet that comes in. */
struct bpf_sock_tuple {
	union {
		struct {
			__be32 saddr;
			__be32 daddr;
			__be16 sport;
			__be16 dport;
		} ipv4;
		struct {
			__be32 saddr[4];
			__be32 daddr[4];
			__be16 sport;
			__be16 dport;
		} ipv6;
	};
};

/* States of TCP sockets that are no connection yet. */
enum {
	BPF_TCP_LISTEN = 10,
	BPF_TCP_NEW_SYN_RECV = 12,
};

#define BPF_F_CURRENT_NETNS (~0ULL)

static struct bpf_sock *(*bpf_sk_lookup_udp)(void *ctx, struct bpf_sock_tuple *tuple, __u32 size, __u64 netns, __u64 flags) __unused = (void *)85;
static struct bpf_sock *(*bpf_skc_lookup_tcp)(void *ctx, struct bpf_sock_tuple *tuple, __u32 size, __u64 netns, __u64 flags) __unused = (void *)99;

#endif
