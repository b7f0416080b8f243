/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A packet of a steered flow: nothing of it changes but addresses and ports. */
#ifndef BATON_STEERED_H
#define BATON_STEERED_H

#include "begin.h"

/* readdress changes the network header only. */
static __always_inline long readdress(struct __sk_buff *skb, struct packet *p, const struct address *from, const struct address *to)
{
	struct change c = {};

	c.addresses = csum_change_address(&p->tuple.source, from) + csum_change_address(&p->tuple.destination, to);
	if (p->ipv6)
		rewrite_ipv6(p, from, to, &c);
	else
		rewrite_ipv4(p, from, to, &c);
	if (put_network(skb, p))
		return -1;
	if (p->ipv6)
		bpf_csum_update(skb, csum_words(c.addresses + c.hops));
	return 0;
}

/* piece is a fragment after the first: it goes where that went. One that came before it is the stack's. */
__noinline int piece(struct __sk_buff *skb)
{
	struct scratch *s = scratch();
	struct pieces_to *to;
	struct packet *p;

	if (!s || s->packet.hops <= 1)
		return TC_ACT_UNSPEC;
	p = &s->packet;
	s->pieces.source = p->tuple.source;
	s->pieces.destination = p->tuple.destination;
	s->pieces.id = p->id;
	s->pieces.protocol = p->tuple.protocol;
	to = bpf_map_lookup_elem(&steer_pieces, &s->pieces);
	if (!to)
		return TC_ACT_UNSPEC;
	s->question.source = to->source;
	s->question.destination = to->destination;
	s->question.source_port = s->question.destination_port = 0;
	s->question.protocol = p->tuple.protocol;
	s->question.ipv6 = p->ipv6;
	s->question.device = skb->ifindex;
	if (!route(skb, &s->question, p->length, &s->out) || s->out.mtu < p->length) {
		count(FLOW_COUNT_NO_WAY, 1);
		return TC_ACT_SHOT;
	}
	if (readdress(skb, p, &to->source, &to->destination)) {
		count(FLOW_COUNT_FAILED, 1);
		return TC_ACT_SHOT;
	}
	count(FLOW_COUNT_FORWARDED, 1);
	return leave(&s->out);
}

static __noinline void first_piece(const struct found *f, const struct packet *p)
{
	struct scratch *s = scratch();
	struct pieces_to to;

	if (!s)
		return;
	s->pieces.source = p->tuple.source;
	s->pieces.destination = p->tuple.destination;
	s->pieces.id = p->id;
	s->pieces.protocol = p->tuple.protocol;
	to.source = f->element->source;
	to.destination = f->element->destination;
	bpf_map_update_elem(&steer_pieces, &s->pieces, &to, 0);
}

/* carry_steered counts. Both directions say in one place when the flow was last seen. */
static __always_inline void carry_steered(struct found *f, struct life *forth, const struct packet *p, __u32 bytes)
{
	__u32 now = bpf_ktime_get_coarse_ns() >> LAST_SHIFT;

	__sync_fetch_and_add(&f->life->packets, p->packets);
	if (bytes)
		__sync_fetch_and_add(&f->life->bytes, bytes);
	if (get(forth->last) != now)
		set(forth->last, now);
	count(FLOW_COUNT_FORWARDED, p->packets);
}

/* cut reports whether the stack can put a datagram that does not fit into pieces: it takes no packet from an address of
 * its own. */
static __always_inline int cut(const struct found *f, const struct packet *p)
{
	return !p->ipv6 && p->tuple.protocol == IPPROTO_UDP && !(p->ip4.frag_off & htons(IP_DF)) &&
	       f->element->whose.direction == TO_BACKEND && same(&p->tuple.source, &f->element->source);
}

static __always_inline int fits(const struct packet *p, const struct out *out)
{
	return p->segment <= out->mtu;
}

/* send_steered sends a packet on that is known to be able to. */
static __noinline int send_steered(struct __sk_buff *skb, struct found *f, struct packet *p, int to_stack)
{
	struct scratch *s = scratch();
	struct change c;

	if (!s)
		return TC_ACT_SHOT;
	if (p->tuple.protocol == IPPROTO_TCP)
		p->transport_len = TCP_LEN; /* no option is looked at */
	if (p->fragment)
		first_piece(f, p);
	c = move(p, f->element);
	if (!put(skb, p, &c)) {
		count(FLOW_COUNT_FAILED, 1);
		return TC_ACT_SHOT;
	}
	return to_stack ? TC_ACT_UNSPEC : leave(&s->out);
}

static __always_inline int out_of(struct __sk_buff *skb, const struct found *f, const struct packet *p)
{
	struct scratch *s = scratch();

	if (!s)
		return 0;
	onward_question(&s->question, f, p, skb->ifindex);
	return route(skb, &s->question, p->segment, &s->out);
}

/* unfit says what becomes of a packet that does not go on. */
static __noinline int unfit(struct __sk_buff *skb, struct found *f, struct packet *p, enum flow_count why)
{
	struct scratch *s = scratch();

	if (!s || p->odd || p->fragment) {
		count(FLOW_COUNT_ODD, 1);
		return TC_ACT_SHOT;
	}
	return why == FLOW_COUNT_EXPIRED ? expired(skb, f, p) : too_big(skb, f, p, s->out.mtu);
}

/* open_session has a session count from its first datagram on. */
static __always_inline void open_session(struct found *f, struct life *forth, const struct packet *p, __u32 was)
{
	if (!(was & LIFE_OPEN) && __sync_val_compare_and_swap(&forth->state, was, was | LIFE_OPEN) == was)
		settle(f, forth, p, was, was | LIFE_OPEN);
}

static __noinline int steered(struct __sk_buff *skb, struct found *f, struct packet *p)
{
	struct life *forth = ahead(f, p->tuple.protocol, p->ipv6);
	struct scratch *s = scratch();
	int udp = p->tuple.protocol == IPPROTO_UDP, to_stack = 0, verdict;
	__u32 state, bytes;

	if (!forth || !s)
		return TC_ACT_UNSPEC;
	state = get(forth->state);
	if (state & LIFE_GONE) /* it will come again, or be the stack's to answer */
		return udp || p->tcp.flags & TCP_SYN ? TC_ACT_SHOT : TC_ACT_UNSPEC;
	if (state & LIFE_REFUSE)
		return refuse(skb, f, p);
	if (state & LIFE_WAITS && f->element->whose.direction == TO_BACKEND) {
		verdict = in_turn(skb, forth, p);
		if (verdict != ITS_TURN)
			return verdict;
		state = get(forth->state);
	}
	if (p->hops <= 1)
		return unfit(skb, f, p, FLOW_COUNT_EXPIRED);
	if (!s->way_known && !out_of(skb, f, p)) {
		count(FLOW_COUNT_NO_WAY, 1);
		return TC_ACT_SHOT;
	}
	if (!fits(p, &s->out)) {
		to_stack = cut(f, p);
		if (!to_stack)
			return unfit(skb, f, p, FLOW_COUNT_TOO_BIG);
	}
	bytes = p->payload;
	s->ended = 0;
	if (udp)
		open_session(f, forth, p, state);
	else
		bytes = live(f, forth, p);
	if (!udp && get(forth->state) & LIFE_REFUSE) /* one too many: its backend has not heard of it yet */
		return refuse(skb, f, p);
	carry_steered(f, forth, p, bytes);
	if ((state & (LIFE_OPEN | LIFE_TOLD | LIFE_CLOSED)) == LIFE_OPEN && bpf_ktime_get_coarse_ns() - born(&f->element->whose, forth) > TOLD_AFTER)
		tell_begun(f, forth, p, state);
	if (s->ended)
		tell_end(f, p);
	return send_steered(skb, f, p, to_stack);
}

/* renewed reports whether a SYN has found a flow that is over, and taken it out. */
static __always_inline int renewed(struct found *f, const struct packet *p)
{
	if (p->tuple.protocol != IPPROTO_TCP || f->element->whose.direction != TO_BACKEND)
		return 0;
	if ((p->tcp.flags & (TCP_SYN | TCP_ACK | TCP_RST)) != TCP_SYN || !(get(f->life->state) & LIFE_CLOSED))
		return 0;
	return make_way(f, p);
}

/* steer's answer for a packet that is not its own; no verdict of the kernel's. */
#define HANDED_OFF 102

/* steer is for packets of steered flows, and of none. (As it is not static, a verifier looks at it once, and not anew
 * for every way that leads here.) */
__noinline int steer(struct __sk_buff *skb)
{
	struct scratch *s = scratch();
	struct packet *p;
	struct found f;
	int verdict;

	if (!s)
		return TC_ACT_UNSPEC;
	p = &s->packet;
	s->way_known = 0;
	if (find(&p->tuple, p->ipv6, &f)) {
		if (f.slot)
			return HANDED_OFF;
		if (!renewed(&f, p))
			return steered(skb, &f, p);
	}
	verdict = begin(skb, p);
	if (verdict != BEGUN)
		return verdict;
	if (!find(&p->tuple, p->ipv6, &f) || f.slot)
		return TC_ACT_SHOT;
	return steered(skb, &f, p);
}

#endif
