/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The gate of a TCP flow that the stack still has: what passes to its sockets, what waits. */
#ifndef BATON_GATE_H
#define BATON_GATE_H

#include "trim.h"
#include "track.h"

enum verdict {
	VERDICT_PASS, /* to the stack */
	VERDICT_HOLD, /* all of it waits */
	VERDICT_BARE, /* the payload waits, its acknowledgement passes */
	VERDICT_MOVED, /* the gate is not one of those any more */
};

/* fence orders what is before it and after it: an atomic that returns something is a full
 * barrier, one whose result is dropped need not be. */
static __always_inline void fence(__u32 *counter)
{
	__u32 was = __sync_fetch_and_add(counter, 1);

	opaque(was);
}

/* fresh reports whether a segment carries what was not let through before. */
static __always_inline int fresh(const struct path *path, const struct packet *p)
{
	__u32 len = taken(p);

	if (!len || p->tcp.flags & (TCP_SYN | TCP_RST))
		return 0;
	return !(get(path->track.seen) & SEEN_DATA) || before(get(path->track.end), ntohl(p->tcp.seq) + len);
}

static __always_inline void hold(struct found *f, const struct packet *p)
{
	struct path *path = f->path;

	if (p->ts_at && !(get(path->track.seen) & SEEN_HELD_STAMP)) {
		set(path->track.ts_held, get32(p, p->ts_at));
		saw(path, SEEN_HELD_STAMP);
	}
	saw(path, SEEN_HELD);
	if (p->tcp.flags & TCP_RST && (!(get(path->track.seen) & SEEN_DATA) || ntohl(p->tcp.seq) == get(path->track.end)))
		saw(path, SEEN_HELD_RESET); /* nobody will repeat it */
}

static __always_inline enum verdict at_gate(struct found *f, const struct packet *p)
{
	switch (get(f->slot->gate)) {
	case GATE_WATCH:
		watch(f, p);
		return VERDICT_PASS;
	case GATE_DRAIN:
		if (!fresh(f->path, p)) {
			watch(f, p);
			return VERDICT_PASS;
		}
		hold(f, p);
		if (p->fragment || p->odd || !(p->tcp.flags & TCP_ACK))
			return VERDICT_HOLD;
		if (plausible(f, p)) {
			track_stamp(f->path, p);
			track_ack(f->path, ntohl(p->tcp.ack_seq), ntohs(p->tcp.window));
		}
		return VERDICT_BARE;
	case GATE_FREEZE:
		hold(f, p);
		return VERDICT_HOLD;
	default:
		return VERDICT_MOVED;
	}
}

/* decide says what becomes of a segment. Userspace sets the gate, then waits until enter and
 * leave are equal: it reads what every decision under the earlier gate has left behind. A
 * decision that it does not wait for has not read the gate yet. */
static __always_inline enum verdict decide(struct found *f, const struct packet *p)
{
	enum verdict v;

	fence(&f->path->track.enter);
	v = at_gate(f, p);
	fence(&f->path->track.leave);
	return v;
}

static __always_inline __u32 lot(void)
{
	__u32 zero = 0;
	struct settings *s = bpf_map_lookup_elem(&flow_settings, &zero);

	return s ? s->lot : 0;
}

/* bare lets the acknowledgement of a segment through, without its payload or FIN. What peers
 * acknowledge in data that is held would otherwise never arrive, and the flow never be quiet. */
static __always_inline int bare(struct __sk_buff *skb, struct packet *p)
{
	__u32 to = lot();

	if (to && !bpf_clone_redirect(skb, to, 0))
		count(FLOW_COUNT_PARKED, 1);
	else
		count(FLOW_COUNT_HELD, 1);
	p->tcp.flags &= ~TCP_FIN;
	if (!shorten(skb, p))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

static __always_inline int park(void)
{
	__u32 to = lot();

	count(to ? FLOW_COUNT_PARKED : FLOW_COUNT_HELD, 1);
	return to ? bpf_redirect(to, 0) : TC_ACT_SHOT;
}

/* gated is for every gate that leaves a flow with the stack. It returns VERDICT_MOVED, or
 * less: the verdict for the kernel. */
#define GATED_MOVED 100

static __noinline int gated(struct __sk_buff *skb, struct found *f, struct packet *p)
{
	switch (decide(f, p)) {
	case VERDICT_PASS:
		return TC_ACT_UNSPEC;
	case VERDICT_HOLD:
		return park();
	case VERDICT_BARE:
		return bare(skb, p);
	default:
		return GATED_MOVED;
	}
}

#endif
