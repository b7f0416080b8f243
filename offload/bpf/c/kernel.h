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
typedef signed char __s8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16; /* network byte order */
typedef __u32 __be32;
typedef __u16 __sum16;

_Static_assert(sizeof(__u16) == 2 && sizeof(__u32) == 4 && sizeof(__u64) == 8, "widths");

/* linux/socket.h, linux/in.h, linux/in6.h */
enum {
	AF_INET = 2,
	AF_INET6 = 10,
};

enum {
	IPPROTO_HOPOPTS = 0,
	IPPROTO_ICMP = 1,
	IPPROTO_TCP = 6,
	IPPROTO_UDP = 17,
	IPPROTO_FRAGMENT = 44,
	IPPROTO_ICMPV6 = 58,
};

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_SOCKMAP = 15,
	BPF_MAP_TYPE_RINGBUF = 27,
};

/* Flags for the creation of a map. */
enum {
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_RDONLY_PROG = 1 << 7,
	BPF_F_MMAPABLE = 1 << 10,
};

/* Flags of helpers. */
enum {
	BPF_F_INGRESS = 1 << 0,        /* bpf_redirect: as if it had arrived there */
	BPF_F_PSEUDO_HDR = 1 << 4,     /* bpf_l4_csum_replace */
	BPF_F_MARK_MANGLED_0 = 1 << 5, /* bpf_l4_csum_replace */
	BPF_NOEXIST = 1,               /* bpf_map_update_elem */
	BPF_RB_NO_WAKEUP = 1 << 0,     /* bpf_ringbuf_output */
	BPF_ADJ_ROOM_MAC = 1,          /* bpf_skb_adjust_room: a mode */
};

/* Verdicts of socket programs. */
enum sk_action {
	SK_DROP = 0,
	SK_PASS = 1,
};

/* Verdicts of tc programs (linux/pkt_cls.h), the same for tcx. */
enum {
	TC_ACT_UNSPEC = -1, /* what the next program says */
	TC_ACT_SHOT = 2,
	TC_ACT_REDIRECT = 7,
};

enum xdp_action {
	XDP_ABORTED,
	XDP_DROP,
	XDP_PASS,
	XDP_TX,
	XDP_REDIRECT,
};

/* linux/if_packet.h */
enum {
	PACKET_HOST = 0,
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

/* The context of tc programs. */
struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol; /* network byte order */
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
	__u32 hash;
	__u32 tc_classid;
	__u32 data;
	__u32 data_end;
	__u32 napi_id;
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 data_meta;
	__u64 flow_keys;
	__u64 tstamp;
	__u32 wire_len;
	__u32 gso_segs;
	__u64 sk;
	__u32 gso_size;
	__u8 tstamp_type;
	__u8 pad[3];
	__u64 hwtstamp;
};

/* The context of XDP programs. */
struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

/* The parameters of bpf_fib_lookup. */
struct bpf_fib_lookup {
	__u8 family;
	__u8 l4_protocol;
	__be16 sport;
	__be16 dport;
	__u16 tot_len; /* afterwards: the mtu */
	__u32 ifindex; /* of ingress; afterwards the way out's */
	__u32 tos;     /* IPv6: flowinfo; afterwards rt_metric */
	__be32 ipv6_src[4]; /* of IPv4 the first word */
	__be32 ipv6_dst[4]; /* afterwards the next hop, of the family that family then says */
	__u16 vlan_proto;
	__u16 vlan_tci;
	__u8 smac[6];
	__u8 dmac[6];
};

enum {
	BPF_FIB_LKUP_RET_SUCCESS = 0,
	BPF_FIB_LKUP_RET_FWD_DISABLED = 5,
	BPF_FIB_LKUP_RET_NO_NEIGH = 7,
	BPF_FIB_LKUP_RET_FRAG_NEEDED = 8,
};

/* The next hop of bpf_redirect_neigh. */
struct bpf_redir_neigh {
	__u32 nh_family;
	__be32 ipv6_nh[4]; /* of IPv4 the first word */
};

#endif
