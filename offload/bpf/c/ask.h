/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Pools that answer by packet: a flow's first packet goes to the process, at a device of its
 * own (the desk), which lets it in again where it had come from, with an answer in
 * steer_answers. What comes of a flow meanwhile goes the same way, behind it: so a repeated SYN
 * is no second flow, and datagrams keep their order. Beyond a budget, and while nobody is
 * there, the table answers.
 */
#ifndef BATON_ASK_H
#define BATON_ASK_H

#include "life.h"
#include "origin.h"

#define BEAT_AGE 300000000ULL /* ns: program.BeatAge */

#define ASKS_PER_SECOND 20000

/* How long an earlier packet of a flow may take from where it is let in again to its way out. */
#define PASSAGE 200000ULL /* ns */
/* Datagrams that follow each other closer than that are not kept waiting for longer than this. */
#define PATIENCE 50000000ULL
/* What has not come back by then never will. */
#define LOST 100000000ULL

#define TURN_SENT (1ULL << 32)
#define TURNS_OVER (1ULL << 63)

static __always_inline int absent(const struct steering *all)
{
	return bpf_ktime_get_coarse_ns() > get(all->beat) + BEAT_AGE;
}

static __always_inline int may_ask(struct steering *all)
{
	__u64 second = bpf_ktime_get_coarse_ns() / 1000000000, was, now;

	for (int i = 0; i < 8; i++) {
		was = get(all->asking);
		now = was >> 32 == (second & 0xffffffff) ? was + 1 : second << 32 | 1;
		if ((now & 0xffffffff) > ASKS_PER_SECOND)
			return 0;
		if (__sync_val_compare_and_swap(&all->asking, was, now) == was)
			return 1;
	}
	return 0;
}

/* ask_process's answer when the process is not to be asked, or has been; no verdict of the kernel's. */
#define ASK_NOT 103

static __always_inline int unasked(void)
{
	steer_count(STEER_COUNT_UNASKED);
	return ASK_NOT;
}

/* ask_process sends a packet without a flow to the process. */
__noinline int ask_process(struct __sk_buff *skb, __u32 pool)
{
	struct steering *all = steering();
	struct scratch *s = scratch();
	struct asked fresh = {}, *a;
	struct packet *p;
	__u64 now = bpf_ktime_get_ns();

	if (!s || !all || returned(skb))
		return ASK_NOT;
	p = &s->packet;
	/* What has no Ethernet header, or is not from outside, has nowhere to come back to. */
	if (!all->desk || !skb->ingress_ifindex || p->network_at < ETH_LEN || p->fragment || absent(all))
		return unasked();
	a = bpf_map_lookup_elem(&steer_asked, &p->tuple);
	if (a && now - get(a->since) < LOST) {
		__sync_fetch_and_add(&a->turns, TURN_SENT);
		return bpf_redirect(all->desk, 0);
	}
	if (!may_ask(all))
		return unasked();
	fresh.turns = TURN_SENT;
	fresh.at = fresh.since = now;
	fresh.pool = pool;
	if (bpf_map_update_elem(&steer_asked, &p->tuple, &fresh, 0))
		return unasked();
	return bpf_redirect(all->desk, 0);
}

/* usable reports whether a backend may have another flow. */
static __always_inline int usable(__u32 id, int ipv6, struct choice *c)
{
	struct backend *b = bpf_map_lookup_elem(&steer_backends, &id);
	__u64 *open;

	if (!b || !b->takes || b->ipv6 != ipv6)
		return 0;
	if (!b->limit)
		return 1;
	open = bpf_map_lookup_elem(&steer_open, &id);
	if (!open || (long)get(*open) < (long)b->limit)
		return 1;
	c->limited = 1;
	return 0;
}

/* by_answer takes what the process has said. */
static __noinline void by_answer(const struct packet *p, struct choice *c)
{
	__u32 *said = bpf_map_lookup_elem(&steer_answers, &p->tuple);

	if (!said)
		return;
	if (*said == ANSWERED_NONE)
		c->none = 1;
	else if (usable(*said, p->ipv6, c))
		c->backend = *said;
	bpf_map_delete_elem(&steer_answers, &p->tuple);
	if (p->tuple.protocol == IPPROTO_UDP)
		c->waits = LIFE_WAITS;
	else
		bpf_map_delete_elem(&steer_asked, &p->tuple);
}

/* pass has a flow's datagrams go straight from now on. */
static __always_inline void pass(struct life *forth)
{
	__u32 was;

	for (int i = 0; i < 8; i++) {
		was = get(forth->state);
		if (!(was & LIFE_WAITS) || __sync_val_compare_and_swap(&forth->state, was, was & ~LIFE_WAITS) == was)
			return;
	}
}

/* in_turn's answer when it is a packet's turn; no verdict of the kernel's. */
#define ITS_TURN 104

/* in_turn is for datagrams of a flow that waits. All have come back, and the last is surely on its way: then what comes may go
 * straight. */
static __noinline int in_turn(struct __sk_buff *skb, struct life *forth, const struct packet *p)
{
	struct asked *a = bpf_map_lookup_elem(&steer_asked, &p->tuple);
	struct steering *all = steering();
	__u64 turns, quiet, now = bpf_ktime_get_ns();

	if (p->fragment) /* the rest of it would come before */
		return ITS_TURN;
	if (!a || !all || !all->desk) {
		pass(forth);
		return ITS_TURN;
	}
	if (returned(skb)) {
		__sync_fetch_and_add(&a->turns, 1);
		set(a->at, now);
		return ITS_TURN;
	}
	turns = get(a->turns);
	quiet = now - get(a->at);
	if (quiet > LOST || (turns >> 32 == (turns & 0xffffffff) && (quiet > PASSAGE || now - get(a->since) > PATIENCE))) {
		if (turns & TURNS_OVER || __sync_val_compare_and_swap(&a->turns, turns, TURNS_OVER) == turns) {
			pass(forth);
			bpf_map_delete_elem(&steer_asked, &p->tuple);
			return ITS_TURN;
		}
	}
	turns = __sync_fetch_and_add(&a->turns, TURN_SENT);
	return turns & TURNS_OVER ? ITS_TURN : bpf_redirect(all->desk, 0);
}

#endif
