/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the programs say about packets and flows. */
#ifndef BATON_TELL_H
#define BATON_TELL_H

#include "flowmaps.h"

static __always_inline void count(enum flow_count what, __u64 packets)
{
	__u64 *n = bpf_map_lookup_elem(&flow_counts, &what);

	if (n)
		*n += packets; /* this CPU's */
}

/* send is a function of its own so that the loader is told of the struct. */
static __noinline long send(struct event *event)
{
	return bpf_ringbuf_output(&flow_events, event, sizeof(*event), 0);
}

/* tell is lost when nobody reads; userspace looks at the slots now and then. */
static __always_inline void tell(const struct element *e, enum happening happening, __u32 value)
{
	struct event event = {
		.slot = e->whose.of,
		.generation = e->whose.generation,
		.happening = happening,
		.direction = e->whose.direction,
		.value = value,
		.at = bpf_ktime_get_coarse_ns(),
	};

	send(&event);
}

#endif
