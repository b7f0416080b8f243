/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What a packet leaves with: computed on the copy of its headers. */
#ifndef BATON_REWRITE_H
#define BATON_REWRITE_H

#include "csum.h"
#include "options.h"

/* What the changes are to checksums. */
struct change {
	__u64 addresses; /* which the transport's checksum covers too */
	__u64 transport;
	__u64 hops; /* IPv6: no checksum covers it */
};

/* rewrite_window makes a window one that the receiver reads with another shift. It is
 * rounded down, so that the sender is not invited to send more than there is room for, with
 * one exception: see Rewrite.Shift in Go. */
static __always_inline __u16 rewrite_window(__u16 window, __s8 shift)
{
	__u32 w = window;

	if (shift > 14 || shift < -14)
		return window; /* nobody asks for it */
	if (shift >= 0) {
		w <<= shift & 15;
		return w > 0xffff ? 0xffff : w;
	}
	w >>= -shift & 15;
	return w || !window ? w : 1;
}

static __always_inline void rewrite_options(struct packet *p, const struct rewrite *r)
{
	__u32 echo;

	if (p->ts_at) {
		put32(p, p->ts_at, get32(p, p->ts_at) + r->ts_value);
		echo = get32(p, p->ts_at + 4);
		if (echo)
			put32(p, p->ts_at + 4, echo + r->ts_echo);
	}
	for (__u32 i = 0; p->sack_at && i < 32; i += 4) /* no more edges fit */
		if (i < p->sack_len)
			put32(p, p->sack_at + i, get32(p, p->sack_at + i) + r->acknowledgement);
}

/* transport_sum is of the header as it lies there. */
static __always_inline __u32 transport_sum(struct packet *p)
{
	__u32 len = p->transport_len;

	opaque(len);
	if (len > TCP_MAX)
		return 0;
	return bpf_csum_diff(NULL, 0, (__be32 *)p->transport, len, 0);
}

static __always_inline void rewrite_tcp(struct packet *p, const struct rewrite *r)
{
	p->tcp.seq = htonl(ntohl(p->tcp.seq) + r->sequence);
	if (p->tcp.flags & TCP_ACK)
		p->tcp.ack_seq = htonl(ntohl(p->tcp.ack_seq) + r->acknowledgement);
	if (!(p->tcp.flags & TCP_SYN))
		p->tcp.window = htons(rewrite_window(ntohs(p->tcp.window), r->shift));
	rewrite_options(p, r);
}

static __always_inline void rewrite_ipv4(struct packet *p, const struct address *from, const struct address *to, struct change *c)
{
	__be32 *hops = (__be32 *)&p->ip4.ttl; /* and the protocol and checksum; of the last nothing changes here */
	__be32 was = *hops;

	p->ip4.ttl--;
	c->hops = csum_change(was, *hops);
	p->ip4.saddr = from->words[3];
	p->ip4.daddr = to->words[3];
	p->ip4.check = csum_apply(p->ip4.check, c->addresses + c->hops);
	c->hops = 0;
}

static __always_inline void rewrite_ipv6(struct packet *p, const struct address *from, const struct address *to, struct change *c)
{
	__be32 *hops = (__be32 *)&p->ip6.payload_len; /* and the next header */
	__be32 was = *hops;

	p->ip6.hop_limit--;
	c->hops = csum_change(was, *hops);
	p->ip6.saddr = *from;
	p->ip6.daddr = *to;
}

/* move gives a packet the other side's addresses and ports. */
static __always_inline struct change move(struct packet *p, const struct element *e)
{
	struct change c = {};
	__be32 was = *(__be32 *)&p->udp;

	c.addresses = csum_change_address(&p->tuple.source, &e->source) + csum_change_address(&p->tuple.destination, &e->destination);
	if (p->ipv6)
		rewrite_ipv6(p, &e->source, &e->destination, &c);
	else
		rewrite_ipv4(p, &e->source, &e->destination, &c);
	p->udp.source = e->source_port;
	p->udp.dest = e->destination_port;
	c.transport = csum_change(was, *(__be32 *)&p->udp);
	return c;
}

/* rewrite makes a packet one of the other side's. */
static __always_inline struct change rewrite(struct packet *p, const struct element *e, const struct rewrite *r)
{
	__u32 was = transport_sum(p);
	struct change c = move(p, e);

	if (p->tuple.protocol == IPPROTO_TCP)
		rewrite_tcp(p, r);
	c.transport = (__u64)(__u32)~was + transport_sum(p);
	return c;
}

/* check_at is where the transport's checksum is in its header. */
static __always_inline __u32 check_at(const struct packet *p)
{
	return p->tuple.protocol == IPPROTO_TCP ? __builtin_offsetof(struct tcphdr, check) : __builtin_offsetof(struct udphdr, check);
}

#endif
