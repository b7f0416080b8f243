/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The same, before there is an skb: for packets that need nothing but to go on. Everything
 * else passes and comes to flow_ingress. So this is not where the gate is: a packet that
 * passes here may wait in a queue for longer than a grace period.
 */
#ifndef BATON_FAST_H
#define BATON_FAST_H

#include "rewrite.h"
#include "way.h"

/* plain is a packet that changes nothing of the flow but its numbers. */
static __always_inline int plain(const struct packet *p)
{
	if (p->odd || p->fragment || p->hops <= 1)
		return 0;
	return p->tuple.protocol == IPPROTO_UDP || !(p->tcp.flags & (TCP_SYN | TCP_FIN | TCP_RST));
}

/* for_us reports whether a frame is addressed to the device that it came in by, as pkt_type
 * says of an skb. */
static __always_inline int for_us(const struct xdp_md *xdp, const struct ethhdr *eth)
{
	__u32 device = xdp->ingress_ifindex;
	struct port *port = bpf_map_lookup_elem(&flow_ports, &device);

	if (!port)
		return 0;
	for (int i = 0; i < 6; i++)
		if (port->mac[i] != eth->h_dest[i])
			return 0;
	return 1;
}

/* neighbour finds the way out, and the addresses for its Ethernet header. There is none for a
 * packet that does not fit. */
static __always_inline int neighbour(struct xdp_md *xdp, struct found *f, const struct packet *p, struct ethhdr *eth, __u32 *device)
{
	struct scratch *s = scratch();
	struct bpf_fib_lookup fib;

	if (!s)
		return 0;
	onward_question(&s->question, f, p, xdp->ingress_ifindex);
	ask(&fib, &s->question, p->length);
	if (bpf_fib_lookup(xdp, &fib, sizeof(fib), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return 0;
	*device = fib.ifindex;
	if (!bpf_map_lookup_elem(&flow_ports, device))
		return 0; /* its driver may not take frames from others */
	__builtin_memcpy(eth->h_dest, fib.dmac, sizeof(eth->h_dest));
	__builtin_memcpy(eth->h_source, fib.smac, sizeof(eth->h_source));
	return 1;
}

static __always_inline void fix_check(struct packet *p, const struct change *c)
{
	if (p->tuple.protocol == IPPROTO_TCP) {
		p->tcp.check = csum_apply(p->tcp.check, c->addresses + c->transport);
	} else if (p->udp.check) {
		p->udp.check = csum_apply(p->udp.check, c->addresses + c->transport);
		if (!p->udp.check)
			p->udp.check = 0xffff;
	}
}

static __always_inline int put_fast(struct xdp_md *xdp, struct packet *p, struct ethhdr *eth)
{
	__u32 len = p->transport_len;

	if (bpf_xdp_store_bytes(xdp, 0, eth, ETH_LEN))
		return 0;
	if (p->ipv6 ? bpf_xdp_store_bytes(xdp, p->network_at, &p->ip6, IPV6_LEN) : bpf_xdp_store_bytes(xdp, p->network_at, &p->ip4, IPV4_LEN))
		return 0;
	if (!len || len > TCP_MAX)
		return 0;
	return !bpf_xdp_store_bytes(xdp, p->transport_at, p->transport, counted(len));
}

static __always_inline int fast(struct xdp_md *xdp, struct packet *p)
{
	struct origin from = {.xdp = xdp, .fast = 1};
	struct ethhdr eth;
	struct change c;
	struct found f;
	__u32 device;
	__u32 bytes;

	if (bpf_xdp_load_bytes(xdp, 0, &eth, ETH_LEN) || parse(from, ntohs(eth.h_proto), p) != KIND_FLOW || !plain(p))
		return XDP_PASS;
	if (!for_us(xdp, &eth) || !find(&p->tuple, p->ipv6, &f) || !f.slot || get(f.slot->gate) != GATE_FORWARD)
		return XDP_PASS;
	if (!neighbour(xdp, &f, p, &eth, &device) || !parse_options(from, p))
		return XDP_PASS;
	bytes = p->tuple.protocol == IPPROTO_TCP ? follow(&f, p) : p->payload;
	c = rewrite(p, f.element, &f.path->rewrite);
	fix_check(p, &c);
	if (!put_fast(xdp, p, &eth)) {
		count(FLOW_COUNT_FAILED, 1);
		return XDP_DROP;
	}
	carry(&f, p, bytes);
	count(FLOW_COUNT_FAST, 1);
	return bpf_redirect(device, 0);
}

#endif
