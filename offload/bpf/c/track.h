/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What is remembered of each direction of a TCP flow, and how its end is seen. */
#ifndef BATON_TRACK_H
#define BATON_TRACK_H

#include "find.h"
#include "options.h"

/* get reads what others write meanwhile. */
#define get(what) (*(const volatile typeof(what) *)&(what))
#define set(what, value) (*(volatile typeof(what) *)&(what) = (value))

/* saw reports whether this is the first time. */
static __always_inline int saw(struct path *p, enum seen what)
{
	if (get(p->track.seen) & what)
		return 0;
	return !(__sync_fetch_and_or((__u32 *)&p->track.seen, what) & what);
}

static __always_inline int before(__u32 a, __u32 b)
{
	return (__s32)(a - b) < 0;
}

/* What of a packet takes up sequence numbers that are to be remembered. A SYN's is not. */
static __always_inline __u32 taken(const struct packet *p)
{
	return p->payload + (p->tcp.flags & TCP_FIN ? 1 : 0);
}

/* The most that a sender can have beyond what is acknowledged. */
static __always_inline __u32 reach(const struct path *other)
{
	__u8 scale = other->rewrite.scale;

	return 0xffffu << (scale && scale < 14 ? scale : 14);
}

/* What the other side has acknowledged, in this side's numbers, when it forwards. */
static __always_inline __u32 expected(const struct found *f)
{
	return get(f->other->track.acked) - f->path->rewrite.sequence;
}

/* track_end moves the end of what was let through, and returns by how much: from base if
 * nothing was before. */
static __always_inline __u32 track_end(struct path *p, __u32 end, __u32 base)
{
	__u32 was, first;

	for (int i = 0; i < 4; i++) {
		was = get(p->track.end);
		first = !(get(p->track.seen) & SEEN_DATA);
		if (!before(first ? base : was, end))
			return 0;
		if (__sync_val_compare_and_swap(&p->track.end, was, end) != was)
			continue;
		if (first)
			saw(p, SEEN_DATA);
		return end - (first ? base : was);
	}
	return 0;
}

static __always_inline void track_ack(struct path *p, __u32 ack, __u16 window)
{
	if (get(p->track.seen) & SEEN_ACK && before(ack, get(p->track.acked)))
		return;
	set(p->track.acked, ack);
	set(p->track.window, window);
	saw(p, SEEN_ACK);
}

static __always_inline int near(__u32 a, __u32 b, __u32 reach)
{
	return a - b + reach <= 2 * reach;
}

/* plausible reports whether a segment to our own stack may be the peer's. What the stack has
 * sent and what it has room for is not known here: it goes by what was seen before. */
static __always_inline int plausible(const struct found *f, const struct packet *p)
{
	const struct track *t = &f->path->track;
	enum seen seen = get(t->seen);

	if (seen & SEEN_DATA && !near(ntohl(p->tcp.seq) + taken(p), get(t->end), reach(f->other)))
		return 0;
	return !(seen & SEEN_ACK) || !(p->tcp.flags & TCP_ACK) || near(ntohl(p->tcp.ack_seq), get(t->acked), reach(f->path));
}

/* acceptable reports whether a segment that goes on may be the true sender's: whoever made
 * up the numbers of another is to change nothing of what is remembered. What it takes up is
 * within the largest window around what the other side expects, and what it acknowledges was
 * sent, not longer ago than such a window (RFC 5961, 5.2). The windows that were announced
 * are no bound: they shrink and are rounded, and a segment that the receiver takes and we do
 * not would have us lose the thread. */
static __always_inline int acceptable(const struct found *f, const struct packet *p)
{
	enum seen seen = get(f->other->track.seen);

	if (!(p->tcp.flags & TCP_ACK))
		return 0; /* nobody takes it */
	if (seen & SEEN_ACK && !near(ntohl(p->tcp.seq) + taken(p), expected(f), reach(f->other)))
		return 0;
	return !(seen & SEEN_DATA) || get(f->other->track.end) - (ntohl(p->tcp.ack_seq) - f->other->rewrite.sequence) <= reach(f->path);
}

static __always_inline void track_stamp(struct path *path, const struct packet *p)
{
	if (!p->ts_at)
		return;
	set(path->track.ts_value, get32(p, p->ts_at));
	saw(path, SEEN_TIMESTAMP);
}

/* watch remembers a segment that goes to the stack. */
static __always_inline void watch(struct found *f, const struct packet *p)
{
	__u32 sequence = ntohl(p->tcp.seq);
	__u32 len = taken(p);

	set(f->path->carried.at, bpf_ktime_get_coarse_ns());
	if (p->fragment)
		saw(f->path, SEEN_DIRTY);
	if (p->tcp.flags & TCP_RST) {
		saw(f->path, SEEN_RESET);
		return;
	}
	if (!plausible(f, p))
		return;
	track_stamp(f->path, p);
	if (p->tcp.flags & TCP_ACK)
		track_ack(f->path, ntohl(p->tcp.ack_seq), ntohs(p->tcp.window));
	if (p->tcp.flags & TCP_SYN || !len)
		return;
	track_end(f->path, sequence + len, sequence);
	if (p->tcp.flags & TCP_FIN) {
		set(f->path->track.fin, sequence + len);
		saw(f->path, SEEN_FIN);
	}
}

/* reset takes a reset for the end only if the receiver would: it has the number that the
 * receiver expects, or will when everything has arrived (RFC 5961, 3.2). Others pass, and
 * the receiver challenges them. */
static __always_inline void reset(struct found *f, __u32 sequence)
{
	const struct track *mine = &f->path->track;

	if ((get(f->other->track.seen) & SEEN_ACK && sequence == expected(f)) ||
	    (get(mine->seen) & SEEN_DATA && sequence == get(mine->end)))
		if (saw(f->path, SEEN_RESET))
			tell(f->element, EVENT_RESET, 0);
}

/* acknowledge looks whether the other direction's FIN has arrived. Nothing follows a FIN,
 * so only one number acknowledges it; one that was invented is never acknowledged. */
static __always_inline void acknowledge(struct found *f, const struct packet *p)
{
	__u32 ack = ntohl(p->tcp.ack_seq);
	struct element of = *f->element;

	track_ack(f->path, ack, ntohs(p->tcp.window));
	if (!(get(f->other->track.seen) & SEEN_FIN) || ack - f->other->rewrite.sequence != get(f->other->track.fin))
		return;
	if (!saw(f->other, SEEN_FIN_ACKED))
		return;
	of.whose.direction ^= 1;
	tell(&of, get(f->path->track.seen) & SEEN_FIN_ACKED ? EVENT_OVER : EVENT_FIN, 0);
}

/* follow remembers a segment that goes on to the other side, and returns how many bytes of
 * payload are new. */
static __always_inline __u32 follow(struct found *f, const struct packet *p)
{
	__u32 sequence = ntohl(p->tcp.seq);
	__u32 len = taken(p), end = sequence + len, base, news;
	int fin = !!(p->tcp.flags & TCP_FIN);

	if (p->tcp.flags & TCP_RST) {
		reset(f, sequence);
		return 0;
	}
	if (p->tcp.flags & TCP_SYN || !acceptable(f, p))
		return 0;
	track_stamp(f->path, p);
	acknowledge(f, p);
	if (!len)
		return 0;
	base = get(f->other->track.seen) & SEEN_ACK ? expected(f) : sequence;
	if (fin && !before(end, base)) {
		set(f->path->track.fin, end);
		saw(f->path, SEEN_FIN);
	}
	news = track_end(f->path, end, base);
	return news && fin ? news - 1 : news;
}

/* over reports whether a flow can have no more to say. */
static __always_inline int over(const struct found *f)
{
	__u32 a = get(f->path->track.seen), b = get(f->other->track.seen);

	return (a | b) & SEEN_RESET || (a & b & SEEN_FIN_ACKED);
}

/* carried counts a packet that goes on to the other side. */
static __always_inline void carry(struct found *f, const struct packet *p, __u32 bytes)
{
	struct carried *c = &f->path->carried;

	__sync_fetch_and_add(&c->packets, p->packets);
	if (bytes)
		__sync_fetch_and_add(&c->bytes, bytes);
	set(c->at, bpf_ktime_get_coarse_ns());
	count(FLOW_COUNT_FORWARDED, p->packets);
	if (saw(f->path, SEEN_FORWARDED))
		tell(f->element, EVENT_FIRST, 0);
}

#endif
