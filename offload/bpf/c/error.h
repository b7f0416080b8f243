/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Telling the sender of a packet why it does not arrive: ICMP errors and resets, made of the
 * packet itself. */
#ifndef BATON_ERROR_H
#define BATON_ERROR_H

#include "trim.h"
#include "way.h"

enum {
	ICMP_DEST_UNREACH = 3,
	ICMP_TIME_EXCEEDED = 11,
	ICMP_PARAMETERPROB = 12,
	ICMP_FRAG_NEEDED = 4, /* a code */

	ICMPV6_DEST_UNREACH = 1,
	ICMPV6_PKT_TOOBIG = 2,
	ICMPV6_TIME_EXCEED = 3,
	ICMPV6_PARAMPROB = 4,
};

#define ICMP_LEN sizeof(struct icmphdr)

/* A CPU makes at most so many errors in about 17 ms; senders try again. */
#define ERRORS_PER_TICK 64
#define TICK_SHIFT 24

static __always_inline int in_budget(void)
{
	struct scratch *s = scratch();
	__u64 tick = bpf_ktime_get_coarse_ns() >> TICK_SHIFT;

	if (!s)
		return 0;
	if (s->budget_at != tick) {
		s->budget_at = tick;
		s->budget = ERRORS_PER_TICK;
	}
	return s->budget ? s->budget-- : 0;
}

/* quoted_sum is of what an error quotes: the packet's network header and the beginning of its
 * transport header. Where a device is still to fill in the transport's checksum, and so will
 * do in the quotation, the sum foresees what it will write. */
static __always_inline __u64 quoted_sum(struct packet *p, int partial)
{
	__u64 network, transport = transport_sum(p);
	__sum16 was, will;

	network = p->ipv6 ? bpf_csum_diff(NULL, 0, (__be32 *)&p->ip6, IPV6_LEN, 0) : bpf_csum_diff(NULL, 0, (__be32 *)&p->ip4, IPV4_LEN, 0);
	if (partial) {
		was = p->tuple.protocol == IPPROTO_TCP ? p->tcp.check : p->udp.check;
		will = ~csum_fold(transport);
		if (!will && p->tuple.protocol == IPPROTO_UDP)
			will = 0xffff;
		transport += (__u16)~was + (__u64)will;
	}
	return (__u32)network + transport;
}

static __always_inline long put_error4(struct __sk_buff *skb, struct packet *p, struct icmphdr *icmp, __u64 quoted, __u32 len)
{
	struct scratch *s = scratch();
	struct error4 *e;

	if (!s)
		return -1;
	e = &s->error4;
	e->ip.version_ihl = 0x45;
	e->ip.tos = 0xc0; /* internetwork control */
	e->ip.tot_len = htons(sizeof(*e) + len);
	e->ip.id = 0;
	e->ip.frag_off = 0;
	e->ip.ttl = 64;
	e->ip.protocol = IPPROTO_ICMP;
	e->ip.check = 0;
	e->ip.saddr = p->tuple.destination.words[3];
	e->ip.daddr = p->tuple.source.words[3];
	e->icmp = *icmp;
	e->ip.check = ~csum_fold(bpf_csum_diff(NULL, 0, (__be32 *)&e->ip, sizeof(e->ip), 0));
	e->icmp.checksum = ~csum_fold(bpf_csum_diff(NULL, 0, (__be32 *)&e->icmp, sizeof(e->icmp), 0) + quoted);
	return bpf_skb_store_bytes(skb, p->network_at, e, sizeof(*e), 0);
}

static __always_inline long put_error6(struct __sk_buff *skb, struct packet *p, struct icmphdr *icmp, __u64 quoted, __u32 len)
{
	struct scratch *s = scratch();
	struct error6 *e;

	if (!s)
		return -1;
	e = &s->error6;
	e->ip.version_class_label = htonl(6 << 28);
	e->ip.payload_len = htons(sizeof(e->icmp) + len);
	e->ip.nexthdr = IPPROTO_ICMPV6;
	e->ip.hop_limit = 64;
	e->ip.saddr = p->tuple.destination;
	e->ip.daddr = p->tuple.source;
	e->icmp = *icmp;
	quoted += pseudo(&e->ip.saddr, &e->ip.daddr, IPPROTO_ICMPV6, sizeof(e->icmp) + len);
	e->icmp.checksum = ~csum_fold(bpf_csum_diff(NULL, 0, (__be32 *)&e->icmp, sizeof(e->icmp), 0) + quoted);
	return bpf_skb_store_bytes(skb, p->network_at, e, sizeof(*e), 0);
}

/* put_error makes an error of a packet that has no IP options. */
static __always_inline int put_error(struct __sk_buff *skb, struct packet *p, struct icmphdr *icmp)
{
	__u32 quote = p->tuple.protocol == IPPROTO_TCP ? TCP_LEN : UDP_LEN;
	__u32 network = p->ipv6 ? IPV6_LEN : IPV4_LEN;
	__u64 sum;
	int partial;

	p->transport_len = quote;
	partial = trim(skb, p, quote);
	if (partial < 0)
		return 0;
	sum = quoted_sum(p, partial);
	if (bpf_skb_adjust_room(skb, network + ICMP_LEN, BPF_ADJ_ROOM_MAC, 0))
		return 0;
	if (p->ipv6)
		return !put_error6(skb, p, icmp, sum, network + quote);
	return !put_error4(skb, p, icmp, sum, network + quote);
}

/* answer sends an error back, and drops what it is about. */
static __noinline int answer(struct __sk_buff *skb, struct found *f, struct packet *p, struct icmphdr *icmp, enum flow_count what)
{
	struct out *out;

	if (!in_budget() || !(out = back(skb, f, p)) || !put_error(skb, p, icmp)) {
		count(FLOW_COUNT_UNTOLD, 1);
		return TC_ACT_SHOT;
	}
	count(what, 1);
	if (what == FLOW_COUNT_TOO_BIG && f->slot)
		tell(f->element, EVENT_TOO_BIG, ntohl(icmp->rest));
	return leave(out);
}

static __always_inline int too_big(struct __sk_buff *skb, struct found *f, struct packet *p, __u32 mtu)
{
	struct icmphdr icmp = {
		.type = p->ipv6 ? ICMPV6_PKT_TOOBIG : ICMP_DEST_UNREACH,
		.code = p->ipv6 ? 0 : ICMP_FRAG_NEEDED,
		.rest = p->ipv6 ? htonl(mtu) : htonl(mtu & 0xffff),
	};

	return answer(skb, f, p, &icmp, FLOW_COUNT_TOO_BIG);
}

static __always_inline int expired(struct __sk_buff *skb, struct found *f, struct packet *p)
{
	struct icmphdr icmp = {.type = p->ipv6 ? ICMPV6_TIME_EXCEED : ICMP_TIME_EXCEEDED};

	return answer(skb, f, p, &icmp, FLOW_COUNT_EXPIRED);
}

/* swap makes the headers those of an answer. */
static __always_inline void swap(struct packet *p)
{
	struct address from = p->tuple.source;
	__be16 port = p->tcp.source;

	p->tuple.source = p->tuple.destination;
	p->tuple.destination = from;
	p->tcp.source = p->tcp.dest;
	p->tcp.dest = port;
	if (p->ipv6) {
		p->ip6.saddr = p->tuple.source;
		p->ip6.daddr = p->tuple.destination;
		p->ip6.hop_limit = 64;
	} else {
		p->ip4.saddr = p->tuple.source.words[3];
		p->ip4.daddr = p->tuple.destination.words[3];
		p->ip4.ttl = 64;
	}
}

/* put_reset sends a reset to who the addresses say. */
static __noinline int put_reset(struct __sk_buff *skb, struct packet *p, __u8 flags, struct out *out)
{
	p->transport_len = TCP_LEN;
	p->tcp.doff = TCP_LEN / 4 << 4;
	p->tcp.flags = flags;
	p->tcp.window = 0;
	p->tcp.urg_ptr = 0;
	if (!shorten(skb, p)) {
		count(FLOW_COUNT_FAILED, 1);
		return TC_ACT_SHOT;
	}
	count(FLOW_COUNT_RESET, 1);
	return leave(out);
}

/* refuse answers a segment with a reset that its sender believes: it has the number that it
 * acknowledges. */
static __noinline int refuse(struct __sk_buff *skb, struct found *f, struct packet *p)
{
	struct out *out;

	if (p->tcp.flags & TCP_RST) {
		if (f->path)
			saw(f->path, SEEN_RESET);
		return TC_ACT_SHOT;
	}
	if (!(p->tcp.flags & TCP_ACK) || p->odd || p->fragment)
		return TC_ACT_SHOT;
	out = back(skb, f, p);
	if (!out) {
		count(FLOW_COUNT_NO_WAY, 1);
		return TC_ACT_SHOT;
	}
	swap(p);
	p->tcp.seq = p->tcp.ack_seq;
	p->tcp.ack_seq = 0;
	return put_reset(skb, p, TCP_RST, out);
}

#endif
