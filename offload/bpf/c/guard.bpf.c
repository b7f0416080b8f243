// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The guard is asked before the kernel looks for a socket: for each SYN (and whatever
 * else of TCP belongs to no connection), and for each datagram that no connected socket
 * takes. Established connections, pings and other protocols never come here.
 *
 * SK_DROP means that there is no socket. It is not silent: the kernel answers with a
 * reset or with ICMP port unreachable, as at a closed port.
 */
#include "guard.h"

/* give gives the packet to the socket in a slot. The kernel then still chooses among the
 * sockets of its SO_REUSEPORT group, if it has one. */
static __always_inline enum count give(struct bpf_sk_lookup *ctx, enum slot slot, enum count given)
{
	void *sk;
	long err;

	if (ctx->family == AF_INET6)
		slot |= SLOT_IPV6;
	if (ctx->protocol == IPPROTO_UDP)
		slot |= SLOT_UDP;
	sk = bpf_map_lookup_elem(&guard_sockets, &slot);
	if (!sk)
		return COUNT_NO_SOCKET;
	err = bpf_sk_assign(ctx, sk, 0);
	bpf_sk_release(sk);
	return err ? COUNT_NO_SOCKET : given;
}

/* asked is the address and port that the client wants. The context's fields of the other
 * family read as zero (sk_lookup_convert_ctx_access in net/core/filter.c). */
static __always_inline struct frontend asked(const struct bpf_sk_lookup *ctx)
{
	return (struct frontend){
		.address.words = {
			ctx->local_ip6[0],
			ctx->local_ip6[1],
			ctx->local_ip6[2] | (ctx->family == AF_INET ? __builtin_bswap32(0xffff) : 0),
			ctx->local_ip6[3] | ctx->local_ip4,
		},
		.port = __builtin_bswap16(ctx->local_port),
		.protocol = ctx->protocol,
	};
}

/* find looks for the rule of what was asked: at its own address, else at the wildcard address. Nothing that is at the
 * wildcard address is at a VIP. */
static __always_inline struct rule *find(const struct bpf_sk_lookup *ctx, enum count *otherwise)
{
	struct frontend f = asked(ctx);
	struct rule *r;

	*otherwise = COUNT_NONE;
	r = bpf_map_lookup_elem(&guard_frontends, &f);
	if (r)
		return r;
	if (bpf_map_lookup_elem(&guard_vips, &f.address)) {
		*otherwise = COUNT_CLOSED;
		return NULL;
	}
	f.address = (struct address){
		.words = { 0, 0, ctx->family == AF_INET ? __builtin_bswap32(0xffff) : 0, 0 },
	};
	return bpf_map_lookup_elem(&guard_frontends, &f);
}

/* who_asks says what a set of sources says of the client. */
static __always_inline enum who who_asks(const struct bpf_sk_lookup *ctx, __u32 set)
{
	struct source s = {
		.prefix = 8 * (sizeof(s) - sizeof(s.prefix)),
		.set = set,
		.address.words = {
			ctx->remote_ip6[0],
			ctx->remote_ip6[1],
			ctx->remote_ip6[2] | (ctx->family == AF_INET ? __builtin_bswap32(0xffff) : 0),
			ctx->remote_ip6[3] | ctx->remote_ip4,
		},
	};
	enum who *who = bpf_map_lookup_elem(&guard_sources, &s);

	return who ? *who : 0;
}

static __always_inline enum count decide(struct bpf_sk_lookup *ctx)
{
	enum count otherwise;
	struct rule *r = find(ctx, &otherwise);
	enum answer how;

	if (!r)
		return otherwise;
	how = r->all;
	if (r->sources) {
		enum who who = who_asks(ctx, r->sources);

		if (!(who & WHO_ALLOWED))
			return give(ctx, SLOT_SILENT, COUNT_DENIED);
		if (who & WHO_INSIDE)
			how = r->inside;
	}
	switch (how) {
	case ANSWER_OWN:
		return COUNT_NONE;
	case ANSWER_SHARED:
		return give(ctx, 0, COUNT_SHARED);
	case ANSWER_SILENT:
		return give(ctx, SLOT_SILENT, COUNT_SILENT);
	default:
		return COUNT_REFUSED;
	}
}

SEC("sk_lookup")
int guard(struct bpf_sk_lookup *ctx)
{
	enum count what = decide(ctx);
	__u64 *n;

	if (what == COUNT_NONE)
		return SK_PASS;
	n = bpf_map_lookup_elem(&guard_counts, &what);
	if (n)
		*n += 1; /* this CPU's */
	return what == COUNT_SHARED || what == COUNT_SILENT || what == COUNT_DENIED ? SK_PASS : SK_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
