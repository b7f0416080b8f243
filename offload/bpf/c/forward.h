/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A packet of a flow that the program carries. */
#ifndef BATON_FORWARD_H
#define BATON_FORWARD_H

#include "error.h"

/* lost is for a packet that cannot go on: a datagram still has a socket that can see to it. */
static __always_inline int lost(const struct packet *p, enum flow_count why)
{
	if (p->tuple.protocol == IPPROTO_UDP)
		return TC_ACT_UNSPEC;
	count(why, 1);
	return TC_ACT_SHOT;
}

static __noinline int forward(struct __sk_buff *skb, struct found *f, struct packet *p)
{
	struct change c;
	struct out *out;
	__u32 bytes = p->payload;
	int udp = p->tuple.protocol == IPPROTO_UDP;

	if (p->odd || p->fragment)
		return lost(p, FLOW_COUNT_ODD);
	if (p->hops <= 1)
		return udp ? TC_ACT_UNSPEC : expired(skb, f, p);
	out = onward(skb, f, p);
	if (!out)
		return lost(p, FLOW_COUNT_NO_WAY);
	if (p->segment > out->mtu) {
		if (udp && !p->ipv6 && !(p->ip4.frag_off & htons(IP_DF)))
			return TC_ACT_UNSPEC; /* our socket's datagrams are fragmented */
		return too_big(skb, f, p, out->mtu);
	}
	if (!udp)
		bytes = follow(f, p);
	c = rewrite(p, f->element, &f->path->rewrite);
	if (!put(skb, p, &c)) {
		count(FLOW_COUNT_FAILED, 1);
		return TC_ACT_SHOT;
	}
	carry(f, p, bytes);
	return leave(out);
}

#endif
