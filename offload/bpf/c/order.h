/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What userspace orders: by a run of a program, because it has to meet what other programs do
 * to the same words. An order may be interrupted by a packet, so it works in steer_order and
 * nowhere else.
 */
#ifndef BATON_ORDER_H
#define BATON_ORDER_H

#include "life.h"

static __always_inline struct order *order(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&steer_order, &zero);
}

struct refill {
	struct order *order;
	struct tickets *tickets;
	__u64 tail;
};

static long put_ticket(__u32 i, struct refill *r)
{
	if (i >= TICKETS)
		return 1;
	set(r->tickets->backends[(r->tail + i) & (TICKETS - 1)], r->order->backends[i]);
	return 0;
}

static __always_inline int do_refill(struct order *o)
{
	struct refill r = {.order = o};
	__u32 pool = o->pool, n = o->count;
	__u64 room;

	r.tickets = bpf_map_lookup_elem(&steer_tickets, &pool);
	if (!r.tickets)
		return 0;
	r.tail = get(r.tickets->tail);
	room = TICKETS - (r.tail - get(r.tickets->head));
	if (n > room)
		n = room;
	bpf_loop(n, put_ticket, &r, 0);
	__sync_val_compare_and_swap(&r.tickets->tail, r.tail, r.tail + n);
	o->done = n;
	return 0;
}

struct flush {
	struct order *order;
	struct tickets *tickets;
	__u64 head;
};

static long get_ticket(__u32 i, struct flush *f)
{
	if (i >= TICKETS)
		return 1;
	f->order->backends[i] = get(f->tickets->backends[(f->head + i) & (TICKETS - 1)]);
	return 0;
}

static __always_inline int do_flush(struct order *o)
{
	struct flush f = {.order = o};
	__u32 pool = o->pool;
	__u64 tail;

	f.tickets = bpf_map_lookup_elem(&steer_tickets, &pool);
	if (!f.tickets)
		return 0;
	tail = get(f.tickets->tail); /* nobody adds meanwhile */
	for (int i = 0; i < 64; i++) {
		f.head = get(f.tickets->head);
		if (__sync_val_compare_and_swap(&f.tickets->head, f.head, tail) == f.head) {
			o->done = tail - f.head;
			bpf_loop(tail - f.head, get_ticket, &f, 0);
			return 0;
		}
	}
	return 0;
}

static __always_inline struct life *life_of(const struct ending *e, struct whose *w)
{
	struct element6 *e6;
	struct element4 *e4;

	if (e->ipv6) {
		e6 = bpf_map_lookup_elem(&flows6, &e->forth);
		if (!e6)
			return NULL;
		*w = e6->whose;
		return &e6->life;
	}
	e4 = bpf_map_lookup_elem(&flows4, &e->forth4);
	if (!e4)
		return NULL;
	*w = e4->whose;
	return &e4->life;
}

struct endings {
	struct order *order;
};

/* end_one deletes a flow that still is the one that was meant. */
static long end_one(__u32 i, struct endings *all)
{
	struct whose w;
	struct ending *e;
	struct life *l;
	__u32 state;

	if (i >= ENDINGS)
		return 1;
	e = &all->order->endings[i];
	l = life_of(e, &w);
	if (!l || born(&w, l) != e->born)
		return 0;
	state = get(l->state);
	if (!e->busy && get(l->last) != e->last)
		return 0;
	if (!claim(l, state, &w, e->forth.protocol))
		return 0;
	if (e->ipv6) {
		bpf_map_delete_elem(&flows6, &e->back);
		bpf_map_delete_elem(&flows6, &e->forth);
	} else {
		bpf_map_delete_elem(&flows4, &e->back4);
		bpf_map_delete_elem(&flows4, &e->forth4);
	}
	one_less();
	all->order->done++;
	return 0;
}

static __always_inline int do_end(struct order *o)
{
	struct endings all = {.order = o};

	bpf_loop(o->count, end_one, &all, 0);
	return 0;
}

/* do_reset has a flow answered with resets from now on. */
static __always_inline int do_reset(struct order *o)
{
	struct ending *e = &o->endings[0];
	struct whose w;
	struct life *l = life_of(e, &w);
	__u32 was;

	if (!l || born(&w, l) != e->born)
		return 0;
	for (int i = 0; i < 16; i++) {
		was = get(l->state);
		if (was & (LIFE_GONE | LIFE_REFUSE))
			return 0;
		if (__sync_val_compare_and_swap(&l->state, was, was | LIFE_CLOSED | LIFE_REFUSE) != was)
			continue;
		if (counts(was))
			account(&w, e->forth.protocol, -1);
		o->done = 1;
		return 0;
	}
	return 0;
}

#endif
