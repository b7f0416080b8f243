// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The programs that carry flows. flow_ingress sits before the stack on every device and sees
 * what peers send; flow_egress sits behind it and sees what our own stack sends. flow_xdp
 * sits in the driver, before flow_ingress, and sends on what it can. Packets of flows that
 * they do not know pass untouched, but for those that begin one at a frontend of mode steer.
 */
#include "gate.h"
#include "forward.h"
#include "quoted.h"
#include "steered.h"
#include "order.h"
#include "own.h"
#include "fast.h"

static __always_inline struct packet *packet(void)
{
	struct scratch *s = scratch();

	return s ? &s->packet : NULL;
}

/* begins reports whether a segment asks for a new flow where one was: then the flow is out of
 * the way from now on. At one that lives the SYN goes on, and the other side challenges it. */
static __always_inline int begins(struct found *f, const struct packet *p, enum gate gate)
{
	if ((p->tcp.flags & (TCP_SYN | TCP_ACK | TCP_RST)) != TCP_SYN || (gate == GATE_FORWARD && !over(f)))
		return 0;
	if (__sync_val_compare_and_swap((__u32 *)&f->slot->gate, gate, GATE_STALE) == gate) {
		count(FLOW_COUNT_STALE, 1);
		tell(f->element, EVENT_STALE, 0);
	}
	return 1;
}

static __always_inline int dispatch_tcp(struct __sk_buff *skb, struct found *f, struct packet *p)
{
	enum gate gate = get(f->slot->gate);
	int verdict;

	if (gate < GATE_FORWARD) {
		verdict = gated(skb, f, p);
		if (verdict != GATED_MOVED)
			return verdict;
		gate = get(f->slot->gate);
	}
	switch (gate) {
	case GATE_FORWARD:
		return begins(f, p, gate) ? TC_ACT_UNSPEC : forward(skb, f, p);
	case GATE_RESET:
		return begins(f, p, gate) ? TC_ACT_UNSPEC : refuse(skb, f, p);
	case GATE_STALE:
		return TC_ACT_UNSPEC;
	default:
		return TC_ACT_SHOT; /* taken back and forth while we looked: it will be repeated */
	}
}

static __always_inline int dispatch(struct __sk_buff *skb, struct packet *p)
{
	struct origin from = {.skb = skb};
	struct found f;
	int verdict;

	if (steers()) {
		verdict = steer(skb);
		if (verdict != HANDED_OFF)
			return verdict;
	}
	if (!find(&p->tuple, p->ipv6, &f) || !f.slot)
		return TC_ACT_UNSPEC;
	if (p->tuple.protocol == IPPROTO_UDP)
		return get(f.slot->gate) == GATE_FORWARD ? forward(skb, &f, p) : TC_ACT_UNSPEC;
	if (get(f.slot->gate) == GATE_STALE || !parse_options(from, p))
		return TC_ACT_UNSPEC;
	return dispatch_tcp(skb, &f, p);
}

SEC("tc")
int flow_ingress(struct __sk_buff *skb)
{
	struct origin from = {.skb = skb};
	struct packet *p = packet();

	/* What has a VLAN's tag comes again, on that VLAN's device. */
	if (!p || skb->pkt_type != PACKET_HOST || skb->vlan_present)
		return TC_ACT_UNSPEC;
	switch (parse(from, ntohs(skb->protocol), p)) {
	case KIND_FLOW:
		return dispatch(skb, p);
	case KIND_ERROR:
		return translate(skb);
	case KIND_PIECE:
		return piece(skb);
	default:
		return TC_ACT_UNSPEC;
	}
}

SEC("tc")
int flow_egress(struct __sk_buff *skb)
{
	struct origin from = {.skb = skb};
	struct packet *p = packet();
	struct found f;
	struct tuple t;

	if (!p || skb->ingress_ifindex) /* not of our own stack: forwarded */
		return TC_ACT_UNSPEC;
	if (parse(from, ntohs(skb->protocol), p) != KIND_FLOW)
		return TC_ACT_UNSPEC;
	t = reversed(&p->tuple);
	return find(&t, p->ipv6, &f) ? own(skb, &f, p) : TC_ACT_UNSPEC;
}

SEC("xdp")
int flow_xdp(struct xdp_md *xdp)
{
	struct packet *p = packet();

	return p ? fast(xdp, p) : XDP_PASS;
}

/* The orders of userspace: see order.h. */

SEC("tc")
int steer_refill(struct __sk_buff *skb __unused)
{
	struct order *o = order();

	return o ? do_refill(o) : 0;
}

SEC("tc")
int steer_flush(struct __sk_buff *skb __unused)
{
	struct order *o = order();

	return o ? do_flush(o) : 0;
}

SEC("tc")
int steer_end(struct __sk_buff *skb __unused)
{
	struct order *o = order();

	return o ? do_end(o) : 0;
}

SEC("tc")
int steer_reset(struct __sk_buff *skb __unused)
{
	struct order *o = order();

	return o ? do_reset(o) : 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
