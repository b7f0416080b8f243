/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Making a packet shorter, which takes away what its checksum was made of. */
#ifndef BATON_TRIM_H
#define BATON_TRIM_H

#include "tc.h"

/* trim cuts a packet behind len bytes of its transport header, which must reach beyond the
 * checksum, and puts those bytes back as they are in the copy. It returns 1 if a device is
 * still to fill in the checksum: the kernel then refuses to cut the checksum off, and nothing
 * else tells. It returns -1 if the kernel refuses. */
static __always_inline int trim(struct __sk_buff *skb, struct packet *p, __u32 len)
{
	int partial = !!bpf_skb_change_tail(skb, p->transport_at + check_at(p) + 1, 0);

	if (bpf_skb_change_tail(skb, p->transport_at + len, 0))
		return -1;
	if (!len || len > TCP_MAX)
		return -1;
	return bpf_skb_store_bytes(skb, p->transport_at, p->transport, counted(len), 0) ? -1 : partial;
}

/* pseudo is the sum of the header that checksums cover beside the packet (RFC 9293, 3.1;
 * RFC 8200, 8.1). The first words of IPv4 addresses add up to nothing. */
static __always_inline __u64 pseudo(const struct address *from, const struct address *to, __u8 protocol, __u16 len)
{
	return csum_address(from) + csum_address(to) + htons(protocol) + htons(len);
}

static __always_inline void set_length(struct packet *p, __u32 transport)
{
	if (p->ipv6) {
		p->ip6.payload_len = htons(transport);
		return;
	}
	p->ip4.tot_len = htons(IPV4_LEN + transport);
	p->ip4.check = 0;
	p->ip4.check = ~csum_fold(bpf_csum_diff(NULL, 0, (__be32 *)&p->ip4, IPV4_LEN, 0));
}

/* shorten leaves of a TCP segment what the copies of its headers say, and no payload. There
 * must be no IP options. It reports 0 if the kernel refuses. */
static __always_inline int shorten(struct __sk_buff *skb, struct packet *p)
{
	__u32 len = p->transport_len;
	__u64 sum = pseudo(&p->tuple.source, &p->tuple.destination, IPPROTO_TCP, len);
	int partial;

	set_length(p, len);
	partial = trim(skb, p, len);
	if (partial < 0)
		return 0;
	p->tcp.check = 0;
	p->tcp.check = partial ? csum_fold(sum) : ~csum_fold(sum + transport_sum(p));
	return !put_network(skb, p) && !put_transport(skb, p);
}

#endif
