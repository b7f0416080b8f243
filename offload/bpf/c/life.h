/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How a steered flow lives and ends. The state of its element towards the backend is the
 * flow's; it changes by compare-and-swap only, and whoever changes it counts and tells.
 */
#ifndef BATON_LIFE_H
#define BATON_LIFE_H

#include "steermaps.h"
#include "track.h"

static __always_inline int counts(__u32 state)
{
	return state & LIFE_OPEN && !(state & (LIFE_CLOSED | LIFE_GONE));
}

static __always_inline __u32 service_of(const struct whose *w)
{
	__u32 backend = w->of;
	struct backend *b = bpf_map_lookup_elem(&steer_backends, &backend);

	return b ? b->service : 0;
}

static __always_inline __u64 born(const struct whose *w, const struct life *l)
{
	return (__u64)l->born << 32 | w->generation;
}

/* account counts a flow at its backend and its service, and returns how many the service has then. */
static __noinline __u32 account(const struct whose *w, __u8 protocol, int change)
{
	__u32 backend = w->of, service = service_of(w);
	__u64 *open = bpf_map_lookup_elem(&steer_open, &backend);
	struct usage *u = bpf_map_lookup_elem(&steer_usage, &service);

	if (open)
		__sync_fetch_and_add(open, (__u64)(long)change);
	if (!u)
		return 0;
	return __sync_fetch_and_add(protocol == IPPROTO_TCP ? &u->connections : &u->sessions, (__u32)change) + (__u32)change;
}

/* announce tells of a flow what is known at one of its packets, or at an answer to one. */
static __noinline void announce(const struct found *f, const struct tuple *t, __u32 state, enum steer_happening what)
{
	struct steering *all = steering();
	struct scratch *s = scratch();
	struct steer_event *e;
	int back = f->element->whose.direction == TO_CLIENT;

	if (!s || !all || !get(all->listened))
		return;
	e = &s->event;
	e->client = back ? f->element->destination : t->source;
	e->client_port = back ? f->element->destination_port : t->source_port;
	e->frontend = back ? f->element->source : t->destination;
	e->frontend_port = back ? f->element->source_port : t->destination_port;
	e->local = back ? t->destination : f->element->source;
	e->local_port = back ? t->destination_port : f->element->source_port;
	e->backend = back ? t->source : f->element->destination;
	e->backend_port = back ? t->source_port : f->element->destination_port;
	e->born = born(&f->element->whose, f->life);
	e->at = bpf_ktime_get_coarse_ns();
	e->happening = what;
	e->state = state;
	e->whose = f->element->whose;
	e->service = service_of(&f->element->whose);
	e->protocol = t->protocol;
	if (bpf_ringbuf_output(&steer_events, e, sizeof(*e), BPF_RB_NO_WAKEUP))
		steer_count(STEER_COUNT_EVENTS_LOST);
}

/* A CPU tells at once of so many beginnings in about 17 ms. Of the others userspace hears when they have lasted for a while, or at
 * their end: with many at a time it would be busy with flows that are over when it looks. */
#define TOLD_PER_TICK 16
#define TOLD_SHIFT 24
#define TOLD_AFTER 50000000ULL /* ns */

static __always_inline int tells(__u8 protocol)
{
	struct steering *all = steering();
	struct scratch *s = scratch();
	__u64 tick = bpf_ktime_get_coarse_ns() >> TOLD_SHIFT;

	if (!s || !all)
		return 0;
	if (protocol != IPPROTO_TCP || get(all->listened) == LISTENS_TO_ALL)
		return 1;
	if (s->telling_at != tick) {
		s->telling_at = tick;
		s->telling = TOLD_PER_TICK;
	}
	return s->telling ? s->telling-- : 0;
}

/* tell_begun tells of a flow that it is open, once. */
static __noinline void tell_begun(const struct found *f, struct life *forth, const struct packet *p, __u32 state)
{
	if (!tells(p->tuple.protocol))
		return;
	__sync_fetch_and_or(&forth->state, LIFE_TOLD);
	announce(f, &p->tuple, state, STEER_OPENED);
}

static __always_inline int too_many(const struct whose *w, __u32 now)
{
	__u32 service = service_of(w);
	struct service *s = bpf_map_lookup_elem(&steer_services, &service);

	return s && s->connections && now > s->connections;
}

static __always_inline int listens_to_all(void)
{
	struct steering *all = steering();

	return all && get(all->listened) == LISTENS_TO_ALL;
}

/* settle does what a change of state asks for. Of flows that open at the same time those beyond the service's limit are
 * ended here. */
static __noinline void settle(const struct found *f, struct life *forth, const struct packet *p, __u32 was, __u32 is)
{
	struct scratch *s = scratch();
	int change = counts(is) - counts(was);
	__u32 fins = is & (LIFE_FIN_CLIENT | LIFE_FIN_BACKEND), now = 0;

	if (change)
		now = account(&f->element->whose, p->tuple.protocol, change);
	if (change > 0 && p->tuple.protocol == IPPROTO_TCP && too_many(&f->element->whose, now) &&
	    __sync_val_compare_and_swap(&forth->state, is, is | LIFE_CLOSED | LIFE_REFUSE) == is) {
		account(&f->element->whose, p->tuple.protocol, -1);
		steer_count(STEER_COUNT_OVER_LIMIT);
		return;
	}
	if (change > 0)
		tell_begun(f, forth, p, is);
	if (is & LIFE_CLOSED && !(was & LIFE_CLOSED)) {
		if (s)
			s->ended = is; /* told when this packet is counted */
	} else if (fins && !(was & (LIFE_FIN_CLIENT | LIFE_FIN_BACKEND)) && listens_to_all())
		announce(f, &p->tuple, is, STEER_HALF_SHUT);
}

/* How far from what was seen a FIN or a reset can be, and still be meant. Whoever makes one up has a flow marked that goes
 * on nevertheless, and is forgotten sooner when it is silent. */
#define FIN_REACH (1u << 20)
#define RESET_REACH 0xffffu

/* after is the state after a segment. */
static __always_inline __u32 after(const struct found *f, const struct packet *p, __u32 s, __u32 seen)
{
	int back = f->element->whose.direction == TO_CLIENT;
	__u32 seq = ntohl(p->tcp.seq), mine = back ? LIFE_FIN_BACKEND : LIFE_FIN_CLIENT;
	__u8 flags = p->tcp.flags;

	if (s & (LIFE_CLOSED | LIFE_GONE))
		return s;
	if (flags & TCP_RST) {
		if (seen - seq > RESET_REACH && !(back && !(s & LIFE_REPLIED)))
			return s;
		if (back && !(s & (LIFE_FIN_CLIENT | LIFE_FIN_BACKEND)))
			s |= LIFE_BACKEND_FIRST;
		return s | LIFE_CLOSED | LIFE_WAS_RESET;
	}
	if (flags & TCP_SYN)
		return back && flags & TCP_ACK ? s | LIFE_REPLIED : s;
	if (!back && flags & TCP_ACK && s & LIFE_REPLIED)
		s |= LIFE_OPEN;
	if (flags & TCP_FIN && s & LIFE_OPEN && !(s & mine) && near(seq + taken(p), seen, FIN_REACH)) {
		if (back && !(s & LIFE_FIN_CLIENT))
			s |= LIFE_BACKEND_FIRST;
		s |= mine;
		if (s & LIFE_FIN_CLIENT && s & LIFE_FIN_BACKEND)
			s |= LIFE_CLOSED;
	}
	return s;
}

/* further notes how far a direction's numbers have come, and returns how many bytes of payload are new. */
static __always_inline __u32 further(struct life *l, const struct packet *p)
{
	__u32 end = ntohl(p->tcp.seq) + taken(p), was;

	if (p->tcp.flags & TCP_SYN) {
		if (p->tcp.flags & TCP_ACK) /* the client's was set when the flow was made */
			set(l->end, end + 1);
		return p->payload;
	}
	for (int i = 0; i < 4 && !(p->tcp.flags & TCP_RST); i++) {
		was = get(l->end);
		if (!before(was, end))
			return 0;
		if (__sync_val_compare_and_swap(&l->end, was, end) == was)
			return end - was - !!(p->tcp.flags & TCP_FIN);
	}
	return 0;
}

/* live takes a segment into account, and returns how many bytes of it are new. */
static __noinline __u32 live(struct found *f, struct life *forth, const struct packet *p)
{
	__u32 seen = get(f->life->end), news = further(f->life, p), was, is;

	for (int i = 0; i < 4; i++) {
		was = get(forth->state);
		is = after(f, p, was, seen);
		if (is == was)
			break;
		if (__sync_val_compare_and_swap(&forth->state, was, is) == was) {
			settle(f, forth, p, was, is);
			break;
		}
	}
	return news;
}

/* claim makes a flow one that is being deleted. It is the claimer's then. */
static __always_inline int claim(struct life *forth, __u32 was, const struct whose *w, __u8 protocol)
{
	if (was & LIFE_GONE || __sync_val_compare_and_swap(&forth->state, was, was | LIFE_GONE) != was)
		return 0;
	if (counts(was))
		account(w, protocol, -1);
	return 1;
}

static __always_inline void one_less(void)
{
	struct steering *all = steering();

	if (all)
		__sync_fetch_and_add(&all->flows, (__u64)-1);
}

static __always_inline const struct tuple4 *four(struct tuple4 *to, const struct tuple *t)
{
	to->source = t->source.words[3];
	to->destination = t->destination.words[3];
	to->source_port = t->source_port;
	to->destination_port = t->destination_port;
	to->protocol = t->protocol;
	return to;
}

static __always_inline void forget_tuple(struct scratch *s, const struct tuple *t, int ipv6)
{
	if (ipv6)
		bpf_map_delete_elem(&flows6, t);
	else
		bpf_map_delete_elem(&flows4, four(&s->tuple4, t));
}

/* opposite is the tuple of the other direction's packets. */
static __always_inline void opposite(struct tuple *to, const struct element *e, __u8 protocol)
{
	to->source = e->destination;
	to->destination = e->source;
	to->source_port = e->destination_port;
	to->destination_port = e->source_port;
	to->protocol = protocol;
}

/* make_way deletes a flow that is over, for one that begins with the same addresses. The way back goes first: until the
 * other is gone too nobody makes it anew. */
static __noinline int make_way(struct found *f, const struct packet *p)
{
	struct scratch *s = scratch();

	if (!s || !claim(f->life, get(f->life->state), &f->element->whose, p->tuple.protocol))
		return 0;
	opposite(&s->back, f->element, p->tuple.protocol);
	forget_tuple(s, &s->back, p->ipv6);
	forget_tuple(s, &p->tuple, p->ipv6);
	one_less();
	return 1;
}

/* across is the life of the other direction of what was found: NULL if that is of no whole flow. In s->other it leaves
 * its tuple. */
static __always_inline struct life *across(const struct found *f, __u8 protocol, int ipv6)
{
	struct scratch *s = scratch();
	struct element6 *e6;
	struct element4 *e4;
	struct life *l = NULL;
	__u32 generation = 0;

	if (!s)
		return NULL;
	opposite(&s->other, f->element, protocol);
	if (ipv6) {
		e6 = bpf_map_lookup_elem(&flows6, &s->other);
		if (e6) {
			l = &e6->life;
			generation = e6->whose.generation;
		}
	} else {
		e4 = bpf_map_lookup_elem(&flows4, four(&s->tuple4, &s->other));
		if (e4) {
			l = &e4->life;
			generation = e4->whose.generation;
		}
	}
	return l && l->born == f->life->born && generation == f->element->whose.generation ? l : NULL;
}

/* ahead is the life that counts: that of the way to the backend. */
static __always_inline struct life *ahead(struct found *f, __u8 protocol, int ipv6)
{
	return f->element->whose.direction == TO_BACKEND ? f->life : across(f, protocol, ipv6);
}

/* tell_end tells of a flow that a packet has ended, and what it has carried. */
static __noinline void tell_end(const struct found *f, const struct packet *p)
{
	struct scratch *s = scratch();
	__u32 to = f->element->whose.direction & 1;
	struct life *other;

	if (!s)
		return;
	other = across(f, p->tuple.protocol, p->ipv6);
	s->event.bytes[to] = get(f->life->bytes);
	s->event.packets[to] = get(f->life->packets);
	s->event.bytes[to ^ 1] = other ? get(other->bytes) : 0;
	s->event.packets[to ^ 1] = other ? get(other->packets) : 0;
	announce(f, &p->tuple, s->ended, STEER_ENDED);
	s->ended = 0;
}

/* evict deletes the flow whose backend's answers have a tuple, if it is over: another needs its port. */
static __noinline int evict(const struct tuple *back, int ipv6)
{
	struct scratch *s = scratch();
	struct life *forth;
	struct found f;
	__u32 state;

	if (!s || !find(back, ipv6, &f) || f.slot || f.element->whose.direction != TO_CLIENT)
		return 0;
	forth = ahead(&f, back->protocol, ipv6);
	if (!forth)
		return 0;
	state = get(forth->state);
	if (!(state & LIFE_CLOSED) || !claim(forth, state, &f.element->whose, back->protocol))
		return 0;
	forget_tuple(s, back, ipv6);
	forget_tuple(s, &s->other, ipv6);
	one_less();
	return 1;
}

#endif
