/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* From a tuple to the flow that it belongs to. */
#ifndef BATON_FIND_H
#define BATON_FIND_H

#include "tell.h"

/* A packet's flow: what was found for its tuple. */
struct found {
	const struct element *element; /* a copy, until the next is looked for */
	struct life *life;             /* of a steered flow, in the packet's direction */

	/* Of a flow that was handed off, else NULL. */
	struct slot *slot;
	struct path *path;  /* of the packet's direction */
	struct path *other; /* of the opposite one */
};

static __always_inline struct life *find4(const struct tuple *t, struct scratch *s)
{
	struct element4 *e;

	s->tuple4.source = t->source.words[3];
	s->tuple4.destination = t->destination.words[3];
	s->tuple4.source_port = t->source_port;
	s->tuple4.destination_port = t->destination_port;
	s->tuple4.protocol = t->protocol;
	e = bpf_map_lookup_elem(&flows4, &s->tuple4);
	if (!e)
		return NULL;
	ipv4_address(&s->element.source, e->source);
	ipv4_address(&s->element.destination, e->destination);
	s->element.source_port = e->source_port;
	s->element.destination_port = e->destination_port;
	s->element.whose = e->whose;
	return &e->life;
}

static __always_inline struct life *find6(const struct tuple *t, struct scratch *s)
{
	struct element6 *e = bpf_map_lookup_elem(&flows6, t);

	if (!e)
		return NULL;
	s->element.source = e->source;
	s->element.destination = e->destination;
	s->element.source_port = e->source_port;
	s->element.destination_port = e->destination_port;
	s->element.whose = e->whose;
	return &e->life;
}

/* find reports 0 if the tuple, of packets of that family, is nobody's. */
static __noinline int find(const struct tuple *t, int ipv6, struct found *f)
{
	struct scratch *s = scratch();
	struct life *life;
	__u32 slot;

	if (!s)
		return 0;
	life = ipv6 ? find6(t, s) : find4(t, s);
	if (!life)
		return 0;
	f->element = &s->element;
	f->life = life;
	f->slot = NULL;
	f->path = f->other = NULL;
	if (s->element.whose.steered)
		return 1;
	slot = s->element.whose.of;
	f->slot = bpf_map_lookup_elem(&flow_slots, &slot);
	if (!f->slot || f->slot->generation != s->element.whose.generation)
		return 0;
	f->path = &f->slot->paths[s->element.whose.direction & 1];
	f->other = &f->slot->paths[(s->element.whose.direction & 1) ^ 1];
	return 1;
}

#endif
