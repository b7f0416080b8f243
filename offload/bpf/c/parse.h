/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* From bytes to struct packet. */
#ifndef BATON_PARSE_H
#define BATON_PARSE_H

#include "packet.h"

/* Where a packet comes from: one of the two. The compiler knows which, and leaves out what
 * belongs to the other. */
struct origin {
	struct __sk_buff *skb;
	struct xdp_md *xdp;
	int fast; /* it is XDP's */
};

static __always_inline long load(struct origin from, __u32 at, void *to, __u32 len)
{
	return from.fast ? bpf_xdp_load_bytes(from.xdp, at, to, len) : bpf_skb_load_bytes(from.skb, at, to, len);
}

static __always_inline __u32 size(struct origin from)
{
	return from.fast ? bpf_xdp_get_buff_len(from.xdp) : from.skb->len;
}

/* parse_ipv4 reports 0 for what is not understood. */
static __always_inline int parse_ipv4(struct origin from, struct packet *p)
{
	__u32 header;

	if (load(from, p->network_at, &p->ip4, IPV4_LEN))
		return 0;
	header = (p->ip4.version_ihl & 0xf) * 4;
	if (p->ip4.version_ihl >> 4 != 4 || header < IPV4_LEN)
		return 0;
	p->odd = header != IPV4_LEN;
	p->piece = !!(p->ip4.frag_off & htons(IP_OFFSET));
	p->fragment = !p->piece && p->ip4.frag_off & htons(IP_MF);
	p->id = p->ip4.id;
	p->hops = p->ip4.ttl;
	p->tuple.protocol = p->ip4.protocol;
	ipv4_address(&p->tuple.source, p->ip4.saddr);
	ipv4_address(&p->tuple.destination, p->ip4.daddr);
	p->transport_at = p->network_at + header;
	p->length = ntohs(p->ip4.tot_len);
	return 1;
}

static __always_inline int parse_ipv6(struct origin from, struct packet *p)
{
	struct extension x;

	if (load(from, p->network_at, &p->ip6, IPV6_LEN))
		return 0;
	if ((p->ip6.version_class_label >> 4 & 0xf) != 6) /* the first byte in memory */
		return 0;
	p->ipv6 = 1;
	p->hops = p->ip6.hop_limit;
	p->tuple.protocol = p->ip6.nexthdr;
	p->tuple.source = p->ip6.saddr;
	p->tuple.destination = p->ip6.daddr;
	p->transport_at = p->network_at + IPV6_LEN;
	if (p->ip6.payload_len)
		p->length = IPV6_LEN + ntohs(p->ip6.payload_len);
	if (p->tuple.protocol != IPPROTO_HOPOPTS && p->tuple.protocol != IPPROTO_FRAGMENT)
		return 1;
	/* One of these; the kernel puts the first before what it calls BIG TCP. */
	if (load(from, p->transport_at, &x, sizeof(x)))
		return 0;
	p->odd = 1;
	if (p->tuple.protocol == IPPROTO_FRAGMENT) {
		p->piece = !!(x.frag_off & htons(0xfff8));
		p->fragment = !p->piece && x.frag_off & htons(1);
		p->id = x.id;
		x.hdrlen = 0;
	} else if (!p->length) {
		p->odd = 0;
	}
	p->tuple.protocol = x.nexthdr;
	p->transport_at += sizeof(x) + x.hdrlen * 8;
	return 1;
}

/* parse_ports reads what a tuple needs. TCP's options wait until somebody asks. */
static __always_inline int parse_ports(struct origin from, struct packet *p)
{
	switch (p->tuple.protocol) {
	case IPPROTO_TCP:
		if (load(from, p->transport_at, &p->tcp, TCP_LEN))
			return 0;
		p->transport_len = (p->tcp.doff >> 4) * 4;
		if (p->transport_len < TCP_LEN)
			return 0;
		break;
	case IPPROTO_UDP:
		if (load(from, p->transport_at, &p->udp, UDP_LEN))
			return 0;
		p->transport_len = UDP_LEN;
		break;
	default:
		return 0;
	}
	p->tuple.source_port = p->udp.source;
	p->tuple.destination_port = p->udp.dest;
	return 1;
}

/* parse_lengths reports 0 when the packet is shorter than it says. */
static __always_inline int parse_lengths(struct origin from, struct packet *p)
{
	__u32 there = size(from) - p->network_at;
	__u32 headers = p->transport_at - p->network_at + p->transport_len;
	__u32 gso = from.fast ? 0 : from.skb->gso_size;

	if (!p->length && gso)
		p->length = there; /* more than the field can say */
	if (p->length > there || p->length < headers)
		return 0;
	p->payload = p->length - headers;
	p->segment = gso && gso < p->payload ? headers + gso : p->length;
	p->packets = gso && gso < p->payload ? (p->payload + gso - 1) / gso : 1;
	return 1;
}

static __always_inline void forget(struct packet *p)
{
	p->tuple.pad[0] = p->tuple.pad[1] = p->tuple.pad[2] = 0;
	p->length = 0;
	p->ipv6 = p->odd = p->fragment = p->piece = 0;
	p->ts_at = p->sack_at = p->sack_permitted_at = 0;
}

/* What a packet is to the programs. */
enum kind {
	KIND_OTHER, /* the stack should see to it */
	KIND_FLOW,  /* TCP or UDP: all of struct packet is filled in, but for TCP's options */
	KIND_ERROR, /* perhaps an ICMP error: the network header is read */
	KIND_PIECE, /* a fragment that is not the first: the same */
};

/* parse reads a packet, given its protocol by Ethernet's number. */
static __always_inline enum kind parse(struct origin from, __u16 protocol, struct packet *p)
{
	forget(p);
	p->network_at = ETH_LEN;
	if (protocol == ETH_P_IP ? !parse_ipv4(from, p) : protocol != ETH_P_IPV6 || !parse_ipv6(from, p))
		return KIND_OTHER;
	if (p->piece)
		return KIND_PIECE;
	if (p->tuple.protocol == (p->ipv6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP))
		return KIND_ERROR;
	return parse_ports(from, p) && parse_lengths(from, p) ? KIND_FLOW : KIND_OTHER;
}

#endif
