/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Putting changed headers back into an skb, whose checksum may be anything: complete, still
 * to be filled in by a device, or known by a sum over all that was received. */
#ifndef BATON_TC_H
#define BATON_TC_H

#include "rewrite.h"

/* put_network stores the network header. */
static __always_inline long put_network(struct __sk_buff *skb, struct packet *p)
{
	if (p->ipv6)
		return bpf_skb_store_bytes(skb, p->network_at, &p->ip6, IPV6_LEN, 0);
	return bpf_skb_store_bytes(skb, p->network_at, &p->ip4, IPV4_LEN, 0);
}

static __always_inline long put_transport(struct __sk_buff *skb, struct packet *p)
{
	__u32 len = p->transport_len;

	if (!len || len > TCP_MAX)
		return -1;
	return bpf_skb_store_bytes(skb, p->transport_at, p->transport, counted(len), 0);
}

/* fix_sum corrects the checksum, which the helper leaves as it is where a device will fill
 * it in, but for the part of the addresses. Over IPv6 it spoils the sum of a packet that came
 * with one, because it counts on an IPv4 header's checksum to make up for the addresses;
 * bpf_csum_update does nothing to other packets. */
static __always_inline long fix_sum(struct __sk_buff *skb, struct packet *p, const struct change *c)
{
	__u64 udp = p->tuple.protocol == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
	__u32 at = p->transport_at + check_at(p);

	if (c->addresses && bpf_l4_csum_replace(skb, at, 0, csum_words(c->addresses), BPF_F_PSEUDO_HDR | udp))
		return -1;
	if (c->transport && bpf_l4_csum_replace(skb, at, 0, csum_words(c->transport), udp))
		return -1;
	if (p->ipv6)
		bpf_csum_update(skb, csum_words(c->addresses + c->hops));
	if (udp && !p->udp.check) /* nothing makes up for the ports */
		bpf_csum_update(skb, csum_words(c->transport));
	return 0;
}

/* put reports 0 if the kernel refuses; the packet is of no use then. */
static __always_inline int put(struct __sk_buff *skb, struct packet *p, const struct change *c)
{
	return !put_network(skb, p) && !put_transport(skb, p) && !fix_sum(skb, p, c);
}

#endif
