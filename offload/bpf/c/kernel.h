/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the programs need of the kernel's user API, and nothing more: fixed-width
 * types, constants, the contexts that programs are called with. The build uses no
 * header of the machine, so that everybody gets the same objects.
 *
 * Add what a program needs, in the kernel's own names and layout
 * (include/uapi/linux/bpf.h unless another file is named).
 */
#ifndef BATON_KERNEL_H
#define BATON_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16; /* network byte order */
typedef __u32 __be32;

_Static_assert(sizeof(__u16) == 2 && sizeof(__u32) == 4 && sizeof(__u64) == 8, "widths");

/* linux/socket.h, linux/in.h */
enum {
	AF_INET = 2,
	AF_INET6 = 10,
};

enum {
	IPPROTO_TCP = 6,
	IPPROTO_UDP = 17,
};

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_SOCKMAP = 15,
};

/* Flags for the creation of a map. */
enum {
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_RDONLY_PROG = 1 << 7,
};

/* Verdicts of socket programs. */
enum sk_action {
	SK_DROP = 0,
	SK_PASS = 1,
};

/* The context of sk_lookup programs. */
struct bpf_sk_lookup {
	__u64 cookie; /* of the selected socket; only what a test run returns */
	__u32 family;
	__u32 protocol;
	__be32 remote_ip4;
	__be32 remote_ip6[4];
	__be16 remote_port;
	__u16 pad;
	__be32 local_ip4;
	__be32 local_ip6[4];
	__u32 local_port; /* host byte order */
	__u32 ingress_ifindex;
};

#endif
