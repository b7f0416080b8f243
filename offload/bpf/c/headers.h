/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reading the headers of a packet, or of the packet that an ICMP error quotes. Positions
 * count from the network header, so that it does not matter what a device puts before it.
 */
#ifndef BATON_HEADERS_H
#define BATON_HEADERS_H

#include "address.h"
#include "helpers.h"

static long (*bpf_skb_load_bytes_relative)(const void *skb, __u32 offset, void *to, __u32 len, __u32 start) __unused = (void *)68;

enum {
	BPF_HDR_START_NET = 1,
};

/* linux/in6.h */
enum {
	IPPROTO_ROUTING = 43,
	IPPROTO_DSTOPTS = 60,
};

/* linux/if_ether.h, in network byte order. */
enum {
	ETH_P_IP_BE = 0x0008,
	ETH_P_IPV6_BE = 0xdd86,
};

/* linux/ip.h */
struct iphdr {
	__u8 version_ihl;
	__u8 tos;
	__be16 tot_len;
	__be16 id;
	__be16 frag_off;
	__u8 ttl;
	__u8 protocol;
	__sum16 check;
	__be32 saddr;
	__be32 daddr;
};

/* linux/ipv6.h */
struct ipv6hdr {
	__be32 flow;
	__be16 payload_len;
	__u8 nexthdr;
	__u8 hop_limit;
	__be32 saddr[4];
	__be32 daddr[4];
};

/* An extension header's first eight bytes. Of the fragment header the length is not one. */
struct extension {
	__u8 nexthdr;
	__u8 len;
	__be16 frag_off;
	__be32 id;
};

/* More than anybody sends. */
#define MAX_EXTENSIONS 6

/* What of a packet this is. */
enum piece {
	WHOLE,
	FIRST_FRAGMENT,
	LATER_FRAGMENT, /* has no ports */
};

struct headers {
	struct address source;
	struct address destination;
	__be16 source_port; /* with TCP and UDP only */
	__be16 destination_port;
	__u8 protocol;
	__u8 ipv6;
	__u8 piece;
	__u8 pad;
	__be32 id; /* of the packet that was fragmented */
	__u32 end; /* where the IP headers end */
};

static __always_inline int load(const struct __sk_buff *skb, __u32 at, void *to, __u32 len)
{
	return !bpf_skb_load_bytes_relative(skb, at, to, len, BPF_HDR_START_NET);
}

static __always_inline enum piece piece_of(__be16 frag_off, __u16 offset, __u16 more)
{
	frag_off = __builtin_bswap16(frag_off);
	if (frag_off & offset)
		return LATER_FRAGMENT;
	return frag_off & more ? FIRST_FRAGMENT : WHOLE;
}

static __always_inline int read_ipv4(const struct __sk_buff *skb, __u32 at, struct headers *h)
{
	struct iphdr ip;

	if (!load(skb, at, &ip, sizeof(ip)))
		return 0;
	h->source.words[2] = h->destination.words[2] = __builtin_bswap32(0xffff);
	h->source.words[3] = ip.saddr;
	h->destination.words[3] = ip.daddr;
	h->protocol = ip.protocol;
	h->piece = piece_of(ip.frag_off, 0x1fff, 0x2000);
	h->id = ip.id;
	h->end = at + (ip.version_ihl & 0xf) * 4;
	return 1;
}

static __always_inline int read_ipv6(const struct __sk_buff *skb, __u32 at, struct headers *h)
{
	struct ipv6hdr ip;
	struct extension e;

	if (!load(skb, at, &ip, sizeof(ip)))
		return 0;
	__builtin_memcpy(&h->source, ip.saddr, sizeof(ip.saddr));
	__builtin_memcpy(&h->destination, ip.daddr, sizeof(ip.daddr));
	h->ipv6 = 1;
	h->protocol = ip.nexthdr;
	h->end = at + sizeof(ip);
	for (int i = 0; i < MAX_EXTENSIONS && h->piece != LATER_FRAGMENT; i++) {
		switch (h->protocol) {
		case IPPROTO_HOPOPTS:
		case IPPROTO_ROUTING:
		case IPPROTO_DSTOPTS:
		case IPPROTO_FRAGMENT:
			break;
		default:
			return 1;
		}
		if (!load(skb, h->end, &e, sizeof(e)))
			return 0;
		if (h->protocol == IPPROTO_FRAGMENT) {
			h->piece = piece_of(e.frag_off, 0xfff8, 1);
			h->id = e.id;
			h->end += sizeof(e);
		} else {
			h->end += (e.len + 1) * 8;
		}
		h->protocol = e.nexthdr;
	}
	return h->piece == LATER_FRAGMENT;
}

/* read_headers reads those of the packet at a position. It reports 0 for what it does not
 * understand. */
static __noinline int read_headers(const struct __sk_buff *skb, __u32 at, int ipv6, struct headers *h)
{
	__builtin_memset(h, 0, sizeof(*h));
	if (ipv6 ? !read_ipv6(skb, at, h) : !read_ipv4(skb, at, h))
		return 0;
	if (h->piece == LATER_FRAGMENT || (h->protocol != IPPROTO_TCP && h->protocol != IPPROTO_UDP))
		return 1;
	return load(skb, h->end, &h->source_port, 2 * sizeof(h->source_port));
}

#endif
