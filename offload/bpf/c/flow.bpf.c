// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "tell.h"

SEC("tc")
int flow_ingress(struct __sk_buff *skb)
{
	struct element e = {.slot = skb->mark};
	tell(&e, 0, 0);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int flow_egress(struct __sk_buff *skb __unused)
{
	return TC_ACT_UNSPEC;
}

SEC("xdp")
int flow_xdp(struct xdp_md *xdp __unused)
{
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
