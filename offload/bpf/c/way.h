/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The way out: what the kernel's routes say, kept for a second. */
#ifndef BATON_WAY_H
#define BATON_WAY_H

#include "packet.h"
#include "track.h"

#define WAY_AGE 1000000000ULL /* ns */

_Static_assert(sizeof(struct bpf_fib_lookup) == 64, "as long as the kernel's");

static __always_inline void ask(struct bpf_fib_lookup *fib, const struct question *q, __u16 length)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->family = q->ipv6 ? AF_INET6 : AF_INET;
	fib->l4_protocol = q->protocol;
	fib->sport = q->source_port;
	fib->dport = q->destination_port;
	fib->tot_len = length;
	fib->ifindex = q->device;
	if (q->ipv6) {
		__builtin_memcpy(fib->ipv6_src, &q->source, sizeof(fib->ipv6_src));
		__builtin_memcpy(fib->ipv6_dst, &q->destination, sizeof(fib->ipv6_dst));
	} else {
		fib->ipv6_src[0] = q->source.words[3];
		fib->ipv6_dst[0] = q->destination.words[3];
	}
}

/* look asks the routes; known says whether there was a way before. A host that forwards nothing is not asked: then the way is where our
 * own stack sends, with whatever next hop the kernel finds there. */
static __always_inline int look(struct __sk_buff *skb, const struct question *q, __u32 fallback, __u32 known, struct out *out)
{
	struct scratch *s = scratch();
	__u32 mtu = 0;
	long err;

	if (!s)
		return 0;
	ask(&s->fib, q, 0);
	err = bpf_fib_lookup(skb, &s->fib, sizeof(s->fib), 0);
	if (err == BPF_FIB_LKUP_RET_FWD_DISABLED && fallback) {
		bpf_check_mtu(skb, fallback, &mtu, 0, 0);
		out->device = fallback;
		out->mtu = mtu ? mtu : 0xffff;
		out->next.nh_family = 0;
		return 1;
	}
	/* A neighbour that is no more is for a datagram's socket to ask for, and to hear of. */
	if (err == BPF_FIB_LKUP_RET_NO_NEIGH && known && q->protocol == IPPROTO_UDP)
		return 0;
	if (err != BPF_FIB_LKUP_RET_SUCCESS && err != BPF_FIB_LKUP_RET_NO_NEIGH && err != BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return 0;
	out->device = s->fib.ifindex;
	out->next.nh_family = s->fib.family;
	__builtin_memcpy(out->next.ipv6_nh, s->fib.ipv6_dst, sizeof(out->next.ipv6_nh));
	/* What fits a route is told only if something does not. */
	ask(&s->fib, q, 0xffff);
	out->mtu = bpf_fib_lookup(skb, &s->fib, sizeof(s->fib), 0) == BPF_FIB_LKUP_RET_FRAG_NEEDED ? s->fib.tot_len : 0xffff;
	return 1;
}

/* recall reads what was found before, unless that is old or being written. */
static __always_inline int recall(const struct way *w, __u64 now, struct out *out)
{
	__u32 version = get(w->version);

	if (version & 1 || !get(w->device) || now - get(w->at) > WAY_AGE)
		return 0;
	out->device = get(w->device);
	out->mtu = get(w->mtu);
	out->next.nh_family = get(w->family);
	for (int i = 0; i < 4; i++)
		out->next.ipv6_nh[i] = get(w->next_hop[i]);
	return get(w->version) == version;
}

static __always_inline void keep(struct way *w, __u64 now, const struct out *out)
{
	__u32 version = get(w->version);

	if (version & 1 || __sync_val_compare_and_swap(&w->version, version, version + 1) != version)
		return; /* another CPU does */
	set(w->at, now);
	set(w->device, out->device);
	set(w->mtu, out->mtu);
	set(w->family, out->next.nh_family);
	for (int i = 0; i < 4; i++)
		set(w->next_hop[i], out->next.ipv6_nh[i]);
	__sync_val_compare_and_swap(&w->version, version + 1, version + 2);
}

/* find_way reports 0 if there is none. A flow that was not handed off has no path to keep it in. */
static __noinline int find_way(struct __sk_buff *skb, struct path *path, const struct question *q, struct out *out)
{
	__u64 now = bpf_ktime_get_coarse_ns();

	if (!path)
		return look(skb, q, 0, 0, out);
	if (recall(&path->way, now, out))
		return 1;
	if (!look(skb, q, path->device, get(path->way.device), out))
		return 0;
	keep(&path->way, now, out);
	return 1;
}

/* onward_question asks for the way to where a packet of the flow goes next. */
static __always_inline void onward_question(struct question *q, const struct found *f, const struct packet *p, __u32 device)
{
	q->source = f->element->source;
	q->destination = f->element->destination;
	q->source_port = f->element->source_port;
	q->destination_port = f->element->destination_port;
	q->protocol = p->tuple.protocol;
	q->ipv6 = p->ipv6;
	q->device = device;
}

/* onward is the way to where a packet of the flow goes next. The answer is in scratch, as the
 * question is: there is little room on a stack. */
static __always_inline struct out *onward(struct __sk_buff *skb, struct found *f, const struct packet *p)
{
	struct scratch *s = scratch();

	if (!s)
		return NULL;
	onward_question(&s->question, f, p, skb->ifindex);
	return find_way(skb, f->path, &s->question, &s->out) ? &s->out : NULL;
}

/* back is the way to who sent it. */
static __always_inline struct out *back(struct __sk_buff *skb, struct found *f, const struct packet *p)
{
	struct scratch *s = scratch();

	if (!s)
		return NULL;
	s->question.source = p->tuple.destination;
	s->question.destination = p->tuple.source;
	s->question.source_port = p->tuple.destination_port;
	s->question.destination_port = p->tuple.source_port;
	s->question.protocol = p->tuple.protocol;
	s->question.ipv6 = p->ipv6;
	s->question.device = skb->ifindex;
	return find_way(skb, f->other, &s->question, &s->out) ? &s->out : NULL;
}

static __always_inline int leave(struct out *out)
{
	if (!out->next.nh_family)
		return bpf_redirect_neigh(out->device, NULL, 0, 0);
	return bpf_redirect_neigh(out->device, &out->next, sizeof(out->next), 0);
}

#endif
