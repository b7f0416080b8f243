/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What our own stack sends on the flows that the program knows. */
#ifndef BATON_OWN_H
#define BATON_OWN_H

#include "tc.h"
#include "track.h"

static __always_inline struct tuple reversed(const struct tuple *t)
{
	return (struct tuple){
		.source = t->destination,
		.destination = t->source,
		.source_port = t->destination_port,
		.destination_port = t->source_port,
		.protocol = t->protocol,
	};
}

static __always_inline void blank(struct packet *p, __u32 at, __u32 len)
{
	for (__u32 i = 0; i < TCPOLEN_TIMESTAMP; i++)
		if (i < len)
			p->transport[(at + i) & 63] = TCPOPT_NOP;
}

/* take_options takes from our SYN what the client's has not. The socket goes by what the answer
 * says, and so does without. */
static __noinline int take_options(struct __sk_buff *skb, struct packet *p, enum mirror without)
{
	struct origin from = {.skb = skb};
	struct change c = {};
	__u32 was;

	if (!parse_options(from, p))
		return TC_ACT_UNSPEC;
	was = transport_sum(p);
	if (without & MIRROR_NO_TIMESTAMPS && p->ts_at)
		blank(p, p->ts_at - 2, TCPOLEN_TIMESTAMP);
	if (without & MIRROR_NO_SACK && p->sack_permitted_at)
		blank(p, p->sack_permitted_at, TCPOLEN_SACK_PERMITTED);
	c.transport = (__u64)(__u32)~was + transport_sum(p);
	if (put_transport(skb, p) || fix_sum(skb, p, &c)) {
		count(FLOW_COUNT_FAILED, 1);
		return TC_ACT_SHOT;
	}
	count(FLOW_COUNT_MIRRORED, 1);
	return TC_ACT_UNSPEC;
}

/* own says what becomes of a packet, given the flow that answers to it. */
static __always_inline int own(struct __sk_buff *skb, struct found *f, struct packet *p)
{
	int tcp = p->tuple.protocol == IPPROTO_TCP;

	if (!f->slot)
		return TC_ACT_UNSPEC;
	if (get(f->other->device) != skb->ifindex)
		set(f->other->device, skb->ifindex);
	if (!tcp)
		return TC_ACT_UNSPEC;
	switch (get(f->slot->gate)) {
	case GATE_FORWARD:
		break;
	case GATE_RESET:
		if (p->tcp.flags & TCP_RST)
			return TC_ACT_UNSPEC; /* how userspace ends a flow */
		break;
	default:
		if (f->element->whose.direction == TO_CLIENT && f->slot->mirror && (p->tcp.flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
			return take_options(skb, p, f->slot->mirror);
		return TC_ACT_UNSPEC;
	}
	/* There is no socket any more, so this is a refusal of a packet that came in between. */
	count(FLOW_COUNT_OWN, 1);
	return TC_ACT_SHOT;
}

#endif
