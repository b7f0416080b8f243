// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A socket that speaks to a backend from its client's address gets no answers by itself:
 * they are addressed to the client, and this host would forward them. The program sees
 * them as they come in and marks those that belong to a connected socket of this network
 * namespace; a rule of ours then has the kernel deliver what is marked, and the kernel
 * finds the socket as it always does. Packets of others pass untouched.
 */
#include "divert.h"
#include "headers.h"

static __always_inline void count(enum diverted what)
{
	__u64 *n = bpf_map_lookup_elem(&divert_counts, &what);

	if (n)
		*n += 1; /* this CPU's */
}

static __always_inline __u32 socket_tuple(const struct headers *h, struct bpf_sock_tuple *t)
{
	if (h->ipv6) {
		__builtin_memcpy(t->ipv6.saddr, &h->source, sizeof(t->ipv6.saddr));
		__builtin_memcpy(t->ipv6.daddr, &h->destination, sizeof(t->ipv6.daddr));
		t->ipv6.sport = h->source_port;
		t->ipv6.dport = h->destination_port;
		return sizeof(t->ipv6);
	}
	t->ipv4.saddr = h->source.words[3];
	t->ipv4.daddr = h->destination.words[3];
	t->ipv4.sport = h->source_port;
	t->ipv4.dport = h->destination_port;
	return sizeof(t->ipv4);
}

/* has_connection asks for a TCP connection with these addresses and ports, in whatever
 * state: one that is over still has to answer a repeated FIN. A listener is none. */
static __always_inline int has_connection(struct __sk_buff *skb, const struct headers *h)
{
	struct bpf_sock_tuple t = {};
	__u32 size = socket_tuple(h, &t);
	struct bpf_sock *sk;
	__u32 state;

	sk = bpf_skc_lookup_tcp(skb, &t, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	state = sk->state;
	bpf_sk_release(sk);
	return state != BPF_TCP_LISTEN && state != BPF_TCP_NEW_SYN_RECV;
}

/* has_session asks for a UDP socket that is connected to the sender. The kernel's answer
 * may be one that takes what comes from anybody. */
static __always_inline int has_session(struct __sk_buff *skb, const struct headers *h)
{
	struct bpf_sock_tuple t = {};
	__u32 size = socket_tuple(h, &t);
	struct bpf_sock *sk;
	int connected;

	sk = bpf_sk_lookup_udp(skb, &t, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	connected = sk->dst_port == h->source_port;
	bpf_sk_release(sk);
	return connected;
}

/* is_ours asks whether a packet with these headers is for a connected socket to one of
 * the backends. Others' packets cost one look into a table. */
static __noinline int is_ours(struct __sk_buff *skb, const struct headers *h)
{
	struct peer from = {
		.address = h->source,
		.port = h->source_port,
		.protocol = h->protocol,
	};

	__u32 only = 0;
	void *peers = bpf_map_lookup_elem(&divert_peers, &only);

	if (!peers || !bpf_map_lookup_elem(peers, &from))
		return 0;
	return h->protocol == IPPROTO_TCP ? has_connection(skb, h) : has_session(skb, h);
}

static __always_inline int is_later_fragment_of_ours(const struct headers *h)
{
	struct fragment f = {
		.source = h->source, .destination = h->destination, .id = h->id, .protocol = h->protocol,
	};

	return bpf_map_lookup_elem(&divert_fragments, &f) != NULL;
}

static __always_inline void remember_fragments(const struct headers *h)
{
	struct fragment f = {
		.source = h->source, .destination = h->destination, .id = h->id, .protocol = h->protocol,
	};
	__u8 yes = 1;

	bpf_map_update_elem(&divert_fragments, &f, &yes, 0);
}

/* is_error_for_ours asks whether an ICMP message is an error about a packet that a socket
 * of ours has sent. */
static __always_inline int is_error_for_ours(struct __sk_buff *skb, const struct headers *outer)
{
	struct headers sent, answer = {};
	__u8 type;

	if (!load(skb, outer->end, &type, sizeof(type)))
		return 0;
	/* Destination unreachable, time exceeded, parameter problem; too big, with IPv6. */
	if (outer->ipv6 ? type < 1 || type > 4 : type != 3 && type != 11 && type != 12)
		return 0;
	if (!read_headers(skb, outer->end + 8, outer->ipv6, &sent) || sent.piece == LATER_FRAGMENT)
		return 0;
	if (sent.protocol != IPPROTO_TCP && sent.protocol != IPPROTO_UDP)
		return 0;
	answer.source = sent.destination;
	answer.destination = sent.source;
	answer.source_port = sent.destination_port;
	answer.destination_port = sent.source_port;
	answer.protocol = sent.protocol;
	answer.ipv6 = sent.ipv6;
	return is_ours(skb, &answer);
}

static __always_inline enum diverted decide(struct __sk_buff *skb, const struct headers *h)
{
	if (h->piece == LATER_FRAGMENT)
		return is_later_fragment_of_ours(h) ? DIVERTED_FRAGMENT : DIVERTED;
	switch (h->protocol) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
		if (!is_ours(skb, h))
			return DIVERTED;
		if (h->piece == FIRST_FRAGMENT)
			remember_fragments(h);
		return DIVERTED_PACKET;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return is_error_for_ours(skb, h) ? DIVERTED_ERROR : DIVERTED;
	}
	return DIVERTED;
}

/* leave_bridge addresses a frame that a bridge would carry past this host to the bridge
 * itself, which passes it up then. */
static __always_inline void leave_bridge(struct __sk_buff *skb)
{
	__u32 port = skb->ifindex;
	struct bridge *b;

	b = bpf_map_lookup_elem(&divert_ports, &port);
	if (b && !bpf_skb_store_bytes(skb, 0, b->address, sizeof(b->address), 0))
		count(DIVERTED_FRAME);
}

SEC("tc")
int divert(struct __sk_buff *skb)
{
	struct headers h;
	enum diverted what;

	if (skb->mark & divert_mark) /* at the port by which it came */
		return TC_ACT_UNSPEC;
	if (skb->protocol != ETH_P_IP_BE && skb->protocol != ETH_P_IPV6_BE)
		return TC_ACT_UNSPEC;
	if (!read_headers(skb, 0, skb->protocol == ETH_P_IPV6_BE, &h))
		return TC_ACT_UNSPEC;
	what = decide(skb, &h);
	if (what == DIVERTED)
		return TC_ACT_UNSPEC;
	skb->mark |= divert_mark;
	count(what);
	leave_bridge(skb);
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
