/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * ICMP errors about packets that the program sent on: they are about another packet to who
 * sent that. (The stack would look for a socket that is no more.) UDP flows that are not steered have their
 * sockets, which want to know what either side says: those errors are left to the stack. It
 * then knows a smaller mtu too, if one says so, and the way out does a second later.
 */
#ifndef BATON_QUOTED_H
#define BATON_QUOTED_H

#include "error.h"
#include "life.h"

static __always_inline int is_error(__u8 type, int ipv6)
{
	if (ipv6)
		return type >= ICMPV6_DEST_UNREACH && type <= ICMPV6_PARAMPROB;
	return type == ICMP_DEST_UNREACH || type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETERPROB;
}

/* read_quoted reports 0 for what is not to be translated. */
static __always_inline int read_quoted(struct origin from, const struct packet *p, struct quoted *q)
{
	struct icmphdr icmp;

	if (p->odd || p->fragment || load(from, p->transport_at, &icmp, ICMP_LEN) || !is_error(icmp.type, p->ipv6))
		return 0;
	q->unreachable = p->ipv6 ? icmp.type == ICMPV6_DEST_UNREACH : icmp.type == ICMP_DEST_UNREACH && icmp.code != ICMP_FRAG_NEEDED;
	q->network_at = p->transport_at + ICMP_LEN;
	if (p->ipv6) {
		if (load(from, q->network_at, &q->ip6, IPV6_LEN))
			return 0;
		q->protocol = q->ip6.nexthdr;
		q->ports_at = q->network_at + IPV6_LEN;
	} else {
		if (load(from, q->network_at, &q->ip4, IPV4_LEN) || q->ip4.version_ihl != 0x45 || q->ip4.frag_off & htons(IP_OFFSET))
			return 0;
		q->protocol = q->ip4.protocol;
		q->ports_at = q->network_at + IPV4_LEN;
	}
	if (q->protocol != IPPROTO_TCP && q->protocol != IPPROTO_UDP)
		return 0;
	return !load(from, q->ports_at, &q->ports, sizeof(q->ports));
}

/* answer_to is the tuple of packets that come from where the quoted one was to go. */
static __always_inline struct tuple answer_to(const struct quoted *q, int ipv6)
{
	struct tuple t = {.protocol = q->protocol, .source_port = q->ports.dest, .destination_port = q->ports.source};

	if (ipv6) {
		t.source = q->ip6.daddr;
		t.destination = q->ip6.saddr;
	} else {
		ipv4_address(&t.source, q->ip4.daddr);
		ipv4_address(&t.destination, q->ip4.saddr);
	}
	return t;
}

/* restore makes the quoted packet what its sender had sent, and returns the difference to the
 * error's checksum. */
static __always_inline __u64 restore(struct quoted *q, const struct tuple *t, const struct found *f, int ipv6)
{
	const struct element *e = f->element;
	struct ports was = q->ports;
	__u64 addresses = csum_change_address(&t->destination, &e->destination) + csum_change_address(&t->source, &e->source);
	__sum16 check;

	q->ports.source = e->destination_port;
	q->ports.dest = e->source_port;
	if (f->other) /* else it is as it was, as a datagram's length is */
		q->ports.seq = htonl(ntohl(q->ports.seq) - f->other->rewrite.sequence);
	if (ipv6) {
		q->ip6.saddr = e->destination;
		q->ip6.daddr = e->source;
	} else {
		q->ip4.saddr = e->destination.words[3];
		q->ip4.daddr = e->source.words[3];
		check = q->ip4.check;
		q->ip4.check = csum_apply(check, addresses);
		addresses += (__u64)(__u16)~check + q->ip4.check;
	}
	return addresses + csum_change(*(__be32 *)&was, *(__be32 *)&q->ports) + csum_change(was.seq, q->ports.seq);
}

/* put_quoted stores what has changed. The address of a router stays, that of the other side
 * becomes the one that the sender knows. */
static __noinline int put_quoted(struct __sk_buff *skb, struct packet *p, struct scratch *s, struct found *f)
{
	struct quoted *q = &s->quoted;
	struct change c = {};
	__u64 diff = restore(q, &s->asked, f, p->ipv6);
	const struct address *source = same(&p->tuple.source, &s->asked.source) ? &f->element->source : &p->tuple.source;

	c.addresses = csum_change_address(&p->tuple.source, source) + csum_change_address(&p->tuple.destination, &f->element->destination);
	if (p->ipv6)
		rewrite_ipv6(p, source, &f->element->destination, &c);
	else
		rewrite_ipv4(p, source, &f->element->destination, &c);
	if (put_network(skb, p) || bpf_skb_store_bytes(skb, q->ports_at, &q->ports, sizeof(q->ports), 0))
		return 0;
	if (p->ipv6 ? bpf_skb_store_bytes(skb, q->network_at, &q->ip6, IPV6_LEN, 0) : bpf_skb_store_bytes(skb, q->network_at, &q->ip4, IPV4_LEN, 0))
		return 0;
	if (bpf_l4_csum_replace(skb, p->transport_at + __builtin_offsetof(struct icmphdr, checksum), 0, csum_words(csum_words(diff)), 0))
		return 0;
	if (!p->ipv6)
		return 1;
	if (bpf_l4_csum_replace(skb, p->transport_at + __builtin_offsetof(struct icmphdr, checksum), 0, csum_words(c.addresses), BPF_F_PSEUDO_HDR))
		return 0;
	bpf_csum_update(skb, csum_words(c.addresses + c.hops));
	return 1;
}

/* unreached tells, once, that a steered flow's packet has not reached its backend. A connection that is open does not go by that. */
static __noinline void unreached(struct found *f, const struct tuple *t, int ipv6)
{
	struct life *forth;
	__u32 was;

	if (f->slot || f->element->whose.direction != TO_CLIENT)
		return;
	forth = ahead(f, t->protocol, ipv6);
	if (!forth)
		return;
	was = get(forth->state);
	if (was & (LIFE_FAILED | LIFE_GONE | LIFE_CLOSED) || (t->protocol == IPPROTO_TCP && was & LIFE_OPEN))
		return;
	if (__sync_val_compare_and_swap(&forth->state, was, was | LIFE_FAILED) == was)
		announce(f, t, was, STEER_FAILED);
}

__noinline int translate(struct __sk_buff *skb)
{
	struct origin from = {.skb = skb};
	struct scratch *s = scratch();
	struct packet *p;
	struct found f;
	struct out *out;

	if (!s)
		return TC_ACT_UNSPEC;
	p = &s->packet;
	if (!read_quoted(from, p, &s->quoted))
		return TC_ACT_UNSPEC;
	s->asked = answer_to(&s->quoted, p->ipv6);
	if (!find(&s->asked, p->ipv6, &f))
		return TC_ACT_UNSPEC;
	if (f.slot && (s->quoted.protocol != IPPROTO_TCP || get(f.slot->gate) != GATE_FORWARD))
		return TC_ACT_UNSPEC;
	if (p->hops <= 1)
		return TC_ACT_UNSPEC;
	out = onward(skb, &f, p);
	if (!out) {
		count(FLOW_COUNT_NO_WAY, 1);
		return TC_ACT_SHOT;
	}
	if (!put_quoted(skb, p, s, &f)) {
		count(FLOW_COUNT_FAILED, 1);
		return TC_ACT_SHOT;
	}
	count(FLOW_COUNT_TRANSLATED, 1);
	if (s->quoted.unreachable)
		unreached(&f, &s->asked, p->ipv6);
	return leave(out);
}

#endif
