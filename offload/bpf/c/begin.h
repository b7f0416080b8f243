/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A packet without a flow, at a frontend: who is it, may it, and where does it go. */
#ifndef BATON_BEGIN_H
#define BATON_BEGIN_H

#include "choose.h"
#include "error.h"

/* begin's answer when there is a flow now; no verdict of the kernel's. */
#define BEGUN 101

/* refuse_first answers a flow's first packet as a closed port does. */
__noinline int refuse_first(struct __sk_buff *skb, __u32 why)
{
	struct icmphdr icmp = {};
	struct scratch *s = scratch();
	struct found nobody = {};
	struct packet *p;
	struct out *out;

	if (!s)
		return TC_ACT_SHOT;
	p = &s->packet;
	icmp.type = p->ipv6 ? ICMPV6_DEST_UNREACH : ICMP_DEST_UNREACH;
	icmp.code = p->ipv6 ? 4 : 3; /* port unreachable */
	steer_count(why);
	if (p->odd || p->fragment)
		return TC_ACT_SHOT;
	if (p->tuple.protocol == IPPROTO_UDP)
		return answer(skb, &nobody, p, &icmp, FLOW_COUNT_RESET);
	if (!in_budget() || !(out = back(skb, &nobody, p)))
		return TC_ACT_SHOT;
	swap(p);
	p->tcp.ack_seq = htonl(ntohl(p->tcp.seq) + 1 + p->payload);
	p->tcp.seq = 0;
	return put_reset(skb, p, TCP_RST | TCP_ACK, out);
}

static __always_inline __u32 client_is(const struct entrance *at, const struct packet *p)
{
	struct source key = {.prefix = 8 * (sizeof(key) - sizeof(key.prefix)), .address = p->tuple.source};
	__u32 *set, *is, sources = at->sources;

	if (!sources)
		return at->closed;
	set = bpf_map_lookup_elem(&steer_sets, &sources);
	if (!set)
		return at->closed;
	key.set = *set;
	is = bpf_map_lookup_elem(&steer_sources, &key);
	return is && *is != CLIENT_UNSAID ? *is : at->closed;
}

/* within reports whether a service may have another flow now. */
static __noinline int within(const struct service *limits, __u32 service, __u8 protocol)
{
	struct usage *u = bpf_map_lookup_elem(&steer_usage, &service);
	__u64 second = bpf_ktime_get_coarse_ns() / 1000000000, was, now;
	__u32 most = protocol == IPPROTO_TCP ? limits->connections : limits->sessions;

	if (!u)
		return 1;
	if (most && get(*(protocol == IPPROTO_TCP ? &u->connections : &u->sessions)) >= most)
		return 0;
	for (int i = 0; i < 8 && limits->new_per_second; i++) {
		was = get(u->rate);
		now = was >> 32 == (second & 0xffffffff) ? was + 1 : second << 32 | 1;
		if ((now & 0xffffffff) > limits->new_per_second)
			return 0;
		if (__sync_val_compare_and_swap(&u->rate, was, now) == was)
			break;
	}
	return 1;
}

static __always_inline int zero(const struct address *a)
{
	return !(a->words[0] | a->words[1] | a->words[2] | a->words[3]);
}

/* route asks for the way out of a packet of that length. It reports 0 if there is none; mtu is less than the length if
 * the packet does not fit it, and then nothing else is known. */
static __noinline int route(struct __sk_buff *skb, const struct question *q, __u32 length, struct out *out)
{
	struct scratch *s = scratch();
	long err;

	if (!s)
		return 0;
	ask(&s->fib, q, length > 0xffff ? 0xffff : length);
	err = bpf_fib_lookup(skb, &s->fib, sizeof(s->fib), 0);
	if (err == BPF_FIB_LKUP_RET_FRAG_NEEDED) {
		out->mtu = s->fib.tot_len;
		return 1;
	}
	if (err != BPF_FIB_LKUP_RET_SUCCESS && err != BPF_FIB_LKUP_RET_NO_NEIGH)
		return 0;
	out->mtu = length;
	out->device = s->fib.ifindex;
	out->next.nh_family = s->fib.family;
	__builtin_memcpy(out->next.ipv6_nh, s->fib.ipv6_dst, sizeof(out->next.ipv6_nh));
	return 1;
}

/* towards looks for the way to a backend from an address, for a flow's first packet. It reports 0 when this host does not
 * forward there: its own stack sees to the packet then. */
static __noinline int towards(struct __sk_buff *skb, const struct packet *p, const struct address *from, const struct backend *b)
{
	struct scratch *s = scratch();

	if (!s)
		return 0;
	s->question.source = *from;
	s->question.destination = b->address;
	s->question.source_port = p->tuple.source_port;
	s->question.destination_port = b->port;
	s->question.protocol = p->tuple.protocol;
	s->question.ipv6 = p->ipv6;
	s->question.device = skb->ifindex;
	if (!route(skb, &s->question, p->segment, &s->out))
		return 0;
	s->way_known = p->segment <= s->out.mtu;
	return s->way_known || look(skb, &s->question, 0, 0, &s->out);
}

static __always_inline int leads_to(const struct bpf_redir_neigh *next, const struct address *a, int ipv6)
{
	if (ipv6)
		return next->ipv6_nh[0] == a->words[0] && next->ipv6_nh[1] == a->words[1] && next->ipv6_nh[2] == a->words[2] &&
		       next->ipv6_nh[3] == a->words[3];
	return next->nh_family == AF_INET && next->ipv6_nh[0] == a->words[3];
}

/* shows's answer when both are on one bridge of this host: answers come by the stack's sockets only. */
#define SHOWN_BRIDGED 2

/* shows reports whether a backend may see the client's address: its answers to that come by here. The way to the backend is known,
 * and no more afterwards. See judge in offload/transparent, whose rules these are. */
static __noinline int shows(struct __sk_buff *skb, const struct packet *p, const struct backend *b)
{
	struct scratch *s = scratch();
	struct found nobody = {};
	__u32 device;
	int far;

	if (!s || same(&p->tuple.source, &b->address))
		return 0;
	far = !leads_to(&s->out.next, &b->address, p->ipv6);
	device = s->out.device;
	s->way_known = 0;
	if (!back(skb, &nobody, p))
		return 0;
	if (leads_to(&s->out.next, &p->tuple.source, p->ipv6)) {
		if (device != s->out.device)
			return b->keep & KEEP;
		return !far && b->keep & KEEP_BRIDGED ? SHOWN_BRIDGED : 0;
	}
	if (device != s->out.device)
		return !far || b->keep & KEEP_FAR ? 1 : 0;
	return !far && b->keep & KEEP_BESIDE ? 1 : 0;
}

/* put_element puts one direction in. Of new4 and new6 all but the addresses and the direction is there. */
static __noinline long put_element(const struct tuple *t, const struct address *from, const struct address *to, __u32 ports, int ipv6)
{
	struct scratch *s = scratch();

	if (!s)
		return -1;
	if (ipv6) {
		s->new6.source = *from;
		s->new6.destination = *to;
		s->new6.source_port = ports >> 16;
		s->new6.destination_port = ports & 0xffff;
		return bpf_map_update_elem(&flows6, t, &s->new6, BPF_NOEXIST);
	}
	s->new4.source = from->words[3];
	s->new4.destination = to->words[3];
	s->new4.source_port = ports >> 16;
	s->new4.destination_port = ports & 0xffff;
	return bpf_map_update_elem(&flows4, four(&s->tuple4, t), &s->new4, BPF_NOEXIST);
}

static __always_inline void direct(struct scratch *s, enum direction d, __u32 end, const struct packet *p)
{
	struct whose *w = p->ipv6 ? &s->new6.whose : &s->new4.whose;
	struct life *l = p->ipv6 ? &s->new6.life : &s->new4.life;

	w->direction = d;
	l->end = end;
}

/* describe begins both elements of a flow. */
static __always_inline void describe(struct scratch *s, const struct choice *c)
{
	__u64 now = bpf_ktime_get_ns();
	struct whose w = {.of = c->backend, .generation = now, .steered = 1, .picked = c->picked};
	struct life l = {.born = now >> 32, .state = bpf_get_prandom_u32() << 16 | c->waits, .last = now >> LAST_SHIFT};

	s->new4.whose = s->new6.whose = w;
	s->new4.life = s->new6.life = l;
}

#define EEXIST 17

#define PORT_TRIES 48
#define PORT_TRIES_FREE 8 /* before flows that are over have to go */

struct port_try {
	struct packet *packet;
	struct scratch *scratch;
	__u32 first;
	__u32 count;
	__u32 ports; /* of the element */
	long err;
};

static long try_port(__u32 i, struct port_try *t)
{
	struct tuple *back = &t->scratch->back;

	back->destination_port = htons((__u16)(t->first + bpf_get_prandom_u32() % t->count));
	t->err = put_element(back, &t->packet->tuple.destination, &t->packet->tuple.source, t->ports, t->packet->ipv6);
	if (t->err == -EEXIST && i >= PORT_TRIES_FREE && evict(back, t->packet->ipv6))
		t->err = put_element(back, &t->packet->tuple.destination, &t->packet->tuple.source, t->ports, t->packet->ipv6);
	return t->err != -EEXIST;
}

/* way_back makes the element of the backend's answers, and so reserves the flow's addresses there. */
static __always_inline long way_back(struct packet *p, const struct backend *b, int keep)
{
	struct scratch *s = scratch();
	struct steering *all = steering();
	__u32 ports = (__u32)p->tuple.destination_port << 16 | p->tuple.source_port;
	struct port_try t = {.packet = p, .scratch = s, .ports = ports};
	long err = -EEXIST;

	if (!s || !all)
		return -1;
	s->back.source = b->address;
	s->back.source_port = b->port;
	s->back.protocol = p->tuple.protocol;
	s->back.destination = p->tuple.source;
	s->back.destination_port = p->tuple.source_port;
	if (keep)
		err = put_element(&s->back, &p->tuple.destination, &p->tuple.source, ports, p->ipv6);
	if (err != -EEXIST || zero(&b->masked))
		return err;
	if (keep)
		s->way_known = 0;
	s->back.destination = b->masked;
	t.first = all->first_port;
	t.count = all->ports;
	t.err = -EEXIST;
	if (t.count)
		bpf_loop(PORT_TRIES, try_port, &t, 0);
	return t.err;
}

static __always_inline int room(void)
{
	struct steering *all = steering();

	if (!all)
		return 0;
	if (__sync_fetch_and_add(&all->flows, 1) < all->limit)
		return 1;
	__sync_fetch_and_add(&all->flows, (__u64)-1);
	return 0;
}

static __always_inline int failed(long err)
{
	one_less();
	steer_count(err == -EEXIST ? STEER_COUNT_NO_PORT : STEER_COUNT_FULL);
	return TC_ACT_SHOT;
}

/* make puts a flow in. What may happen on several CPUs for one flow ends with one: the element towards the backend is made
 * last, and once; who comes too late takes his way back out again. */
__noinline int make(int keep)
{
	struct scratch *s = scratch();
	struct packet *p;
	struct backend *b;
	__u32 ports;
	long err;

	if (!s)
		return TC_ACT_SHOT;
	p = &s->packet;
	b = bpf_map_lookup_elem(&steer_backends, &s->choice.backend);
	if (!b)
		return TC_ACT_SHOT;
	if (!room()) {
		steer_count(STEER_COUNT_FULL);
		return TC_ACT_SHOT;
	}
	describe(s, &s->choice);
	direct(s, TO_CLIENT, 0, p);
	err = way_back(p, b, keep);
	if (err)
		return failed(err);
	direct(s, TO_BACKEND, p->tuple.protocol == IPPROTO_TCP ? ntohl(p->tcp.seq) + 1 + taken(p) : 0, p);
	ports = (__u32)s->back.destination_port << 16 | b->port;
	err = put_element(&p->tuple, &s->back.destination, &b->address, ports, p->ipv6);
	if (!err)
		return BEGUN;
	forget_tuple(s, &s->back, p->ipv6);
	if (err != -EEXIST)
		return failed(err);
	one_less();
	return BEGUN;
}

/* place's answer for a flow that may not begin: why is in scratch, and refuse_first is for the caller, who is less deep in the
 * stack; no verdict of the kernel's. */
#define REFUSED 105

static __always_inline int refused(struct scratch *s, __u32 why)
{
	s->why = why;
	return REFUSED;
}

/* place finds a backend for a flow that may begin. */
static __noinline int place(struct __sk_buff *skb, struct packet *p, __u32 kept, __u32 id, const struct pool *pool)
{
	struct scratch *s = scratch();
	struct service *limits;
	struct backend *b;
	__u32 service = pool->service;
	int keep, verdict;

	limits = bpf_map_lookup_elem(&steer_services, &service);
	if (!s || !limits)
		return TC_ACT_UNSPEC;
	if (pool->answer == ANSWER_PACKET && !remembers(p, id, service, limits->affinity)) {
		verdict = ask_process(skb, id);
		if (verdict != ASK_NOT)
			return verdict;
	}
	if (!within(limits, service, p->tuple.protocol))
		return refused(s, STEER_COUNT_OVER_LIMIT);
	choose(id, limits->affinity);
	b = bpf_map_lookup_elem(&steer_backends, &s->choice.backend);
	if (!b && s->choice.none)
		return refused(s, STEER_COUNT_SENT_AWAY);
	if (!b)
		return s->choice.limited ? refused(s, STEER_COUNT_OVER_LIMIT) : TC_ACT_UNSPEC;
	keep = kept && b->keep;
	if (!towards(skb, p, keep || zero(&b->masked) ? &p->tuple.source : &b->masked, b))
		return TC_ACT_UNSPEC;
	if (keep) {
		keep = shows(skb, p, b);
		if (keep == SHOWN_BRIDGED)
			return TC_ACT_UNSPEC;
	}
	if (!keep && zero(&b->masked))
		return TC_ACT_UNSPEC;
	return make(keep);
}

/* begin says what becomes of a packet that belongs to no flow. BEGUN: it does now. */
static __always_inline int begin(struct __sk_buff *skb, struct packet *p)
{
	struct steering *all = steering();
	struct scratch *s = scratch();
	struct entrance *at;
	struct pool *pool;
	__u32 id, client;
	int verdict;

	if (!s || !all)
		return TC_ACT_UNSPEC;
	s->frontend.address = p->tuple.destination;
	s->frontend.port = p->tuple.destination_port;
	s->frontend.protocol = p->tuple.protocol;
	at = bpf_map_lookup_elem(&steer_frontends, &s->frontend);
	if (!at || !p->tuple.source_port)
		return TC_ACT_UNSPEC;
	if (p->tuple.protocol == IPPROTO_TCP && (p->tcp.flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) != TCP_SYN) {
		steer_count(STEER_COUNT_STRAY);
		return TC_ACT_UNSPEC;
	}
	id = at->outside;
	client = client_is(at, p);
	switch (client & ~CLIENT_KEPT) {
	case CLIENT_REFUSED:
		return refuse_first(skb, STEER_COUNT_REFUSED_SOURCE);
	case CLIENT_DROPPED:
		steer_count(STEER_COUNT_REFUSED_SOURCE);
		return TC_ACT_SHOT;
	case CLIENT_INSIDE:
		if (at->inside)
			id = at->inside;
		break;
	default:
		break;
	}
	pool = bpf_map_lookup_elem(&steer_pools, &id);
	if (!pool || pool->answer == ANSWER_STACK)
		return TC_ACT_UNSPEC;
	if (pool->answer == ANSWER_DROP) {
		steer_count(STEER_COUNT_DROPPED);
		return TC_ACT_SHOT;
	}
	if (pool->answer == ANSWER_REFUSE || (pool->refuse_absent && absent(all)))
		return refuse_first(skb, STEER_COUNT_REFUSED);
	verdict = place(skb, p, client & CLIENT_KEPT, id, pool);
	return verdict == REFUSED ? refuse_first(skb, s->why) : verdict;
}

#endif
