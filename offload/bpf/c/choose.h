/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which backend a new flow gets: the one that its client had, else by what the process says or a choice that waits, else by a
 * table. */
#ifndef BATON_CHOOSE_H
#define BATON_CHOOSE_H

#include "ask.h"

/* How often something is tried for one packet. */
#define TRIES 16

struct drawing {
	struct tickets *tickets;
	struct choice *choice;
	int ipv6;
};

static long draw(__u32 i __unused, struct drawing *d)
{
	struct tickets *t = d->tickets;
	__u64 head = get(t->head);
	__u32 id;

	if (head == get(t->tail))
		return 1;
	if (__sync_val_compare_and_swap(&t->head, head, head + 1) != head)
		return 0; /* another CPU has it */
	id = get(t->backends[head & (TICKETS - 1)]);
	if (!usable(id, d->ipv6, d->choice))
		return 0;
	d->choice->backend = id;
	return 1;
}

/* by_ticket takes the next choice. A backend that takes no more flows is passed over. */
static __noinline void by_ticket(__u32 pool, int ipv6, struct choice *c)
{
	struct drawing d = {.tickets = bpf_map_lookup_elem(&steer_tickets, &pool), .choice = c, .ipv6 = ipv6};

	if (d.tickets)
		bpf_loop(TRIES, draw, &d, 0);
}

/* mix is the finaliser of SplitMix64: see lb/sched, whose tables and hashes these are. */
static __always_inline __u64 mix(__u64 x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static __always_inline __u64 hash_of(const struct packet *p, int by_address)
{
	const struct address *a = &p->tuple.source;
	__u64 high = (__u64)ntohl(a->words[0]) << 32 | ntohl(a->words[1]);
	__u64 low = (__u64)ntohl(a->words[2]) << 32 | ntohl(a->words[3]);
	__u64 h = mix(0x6a09e667f3bcc908ULL ^ high);

	h = mix((h + 0xbb67ae8584caa73bULL) ^ low);
	return by_address ? h : mix((h + 0x3c6ef372fe94f82bULL) ^ ntohs(p->tuple.source_port));
}

/* scale maps a hash to 0 ... n-1: the upper half of their product. */
static __always_inline __u32 scale(__u64 h, __u32 n)
{
	return ((h >> 32) * n + ((h & 0xffffffff) * n >> 32)) >> 32;
}

#define LOOKUPS 64 /* in a table, for one packet */

struct search {
	struct choice *choice;
	__u64 hash;
	__u32 pool;
	__u32 version;
	__u32 length;
	__u32 at;
	int ipv6;
};

/* look_up looks at one entry. After one that will not do the flow is hashed once more, as in lb/sched: the entries beside
 * it are its like. Only when that has been of no use for long are those looked at one by one. */
static long look_up(__u32 i, struct search *s)
{
	struct table_at at = {.pool = s->pool, .version = s->version, .piece = s->at / TABLE_PIECE};
	struct table *t = bpf_map_lookup_elem(&steer_tables, &at);
	__u32 backend;

	if (!t)
		return 1;
	backend = t->backends[s->at & (TABLE_PIECE - 1)];
	if (usable(backend, s->ipv6, s->choice)) {
		s->choice->backend = backend;
		return 1;
	}
	s->hash = mix(s->hash + 0x9e3779b97f4a7c15ULL);
	if (i < TRIES)
		s->at = scale(s->hash, s->length);
	else
		s->at = s->at + 1 < s->length ? s->at + 1 : 0;
	return 0;
}

static __noinline void by_table(const struct packet *p, __u32 id, const struct pool *pool, struct choice *c)
{
	struct search s = {
		.choice = c,
		.pool = id,
		.version = pool->version,
		.length = pool->length,
		.hash = hash_of(p, pool->by_address),
		.ipv6 = p->ipv6,
	};

	s.at = scale(s.hash, s.length);
	if (s.length)
		bpf_loop(LOOKUPS, look_up, &s, 0);
}

/* recall_client finds the backend that a client had, if it may have it again. It returns what is remembered, in any case. */
static __noinline __u32 recall_client(const struct packet *p, __u32 pool, __u32 service, __u64 affinity, struct choice *c)
{
	struct scratch *s = scratch();
	struct remembered *r;
	struct member m;
	__u64 now = bpf_ktime_get_coarse_ns();

	if (!s)
		return 0;
	s->client.service = service;
	s->client.address = p->tuple.source;
	r = bpf_map_lookup_elem(&steer_affinity, &s->client);
	if (!r)
		return 0;
	m.pool = pool;
	m.backend = get(r->backend);
	if (now - get(r->at) > affinity && get(r->at) < now)
		return m.backend;
	if (bpf_map_lookup_elem(&steer_members, &m) && usable(m.backend, p->ipv6, c)) {
		set(r->at, now);
		c->backend = m.backend;
		c->picked = PICKED_AFFINITY;
	}
	return m.backend;
}

/* remember keeps a client's backend. If another flow of the client has chosen at the same time, the first to get here has:
 * was is what there was before. */
static __noinline void remember(const struct packet *p, __u32 was, struct choice *c)
{
	struct scratch *s = scratch();
	struct remembered fresh = {.at = bpf_ktime_get_coarse_ns(), .backend = c->backend}, *r;
	__u32 got;

	if (!s)
		return;
	if (!was && !bpf_map_update_elem(&steer_affinity, &s->client, &fresh, BPF_NOEXIST))
		return;
	r = bpf_map_lookup_elem(&steer_affinity, &s->client);
	if (!r)
		return; /* there is no room */
	got = __sync_val_compare_and_swap(&r->backend, was, c->backend);
	if (got != was && usable(got, p->ipv6, c)) {
		c->backend = got;
		c->picked = PICKED_AFFINITY;
	}
	set(r->at, fresh.at);
}

/* remembers reports whether a client has a backend. */
static __always_inline int remembers(const struct packet *p, __u32 pool, __u32 service, __u64 affinity)
{
	struct scratch *s = scratch();

	if (!s || !affinity)
		return 0;
	s->choice.backend = 0;
	recall_client(p, pool, service, affinity, &s->choice);
	return !!s->choice.backend;
}

/* choose leaves its choice in scratch. */
__noinline int choose(__u32 id, __u64 affinity)
{
	struct pool *pool = bpf_map_lookup_elem(&steer_pools, &id);
	struct scratch *s = scratch();
	const struct packet *p;
	struct choice *c;
	__u32 was = 0;

	if (!s || !pool)
		return 0;
	p = &s->packet;
	c = &s->choice;
	c->backend = c->limited = c->none = c->waits = 0;
	c->picked = PICKED_ALGORITHM;
	if (affinity) {
		was = recall_client(p, id, pool->service, affinity, c);
		if (c->backend) {
			steer_count(STEER_COUNT_AFFINITY);
			return 0;
		}
	}
	if (pool->answer == ANSWER_TICKET)
		by_ticket(id, p->ipv6, c);
	else if (pool->answer == ANSWER_PACKET)
		by_answer(p, c);
	if (c->backend) {
		steer_count(pool->answer == ANSWER_PACKET ? STEER_COUNT_PACKETS : STEER_COUNT_TICKETS);
	} else if (!c->none) {
		by_table(p, id, pool, c);
		if (!c->backend)
			return 0;
		steer_count(STEER_COUNT_TABLES);
	}
	if (affinity)
		remember(p, was, c);
	return 0;
}

#endif
