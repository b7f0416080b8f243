// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The parking lot is a TAP device. What is sent to it waits in a process; what the process
 * writes to it arrives anew at the device where it had come from, as if it had only been
 * late: the programs there decide again, and firewalls, reverse path filters and sockets
 * see the device that they know.
 */
#include "origin.h"

/* From the gate to the process. */
SEC("tc")
int lot_egress(struct __sk_buff *skb)
{
	__u32 device = skb->ingress_ifindex;
	struct whence origin = {
		.tag = {TAG0, TAG1},
		.device = {device >> 24, device >> 16, device >> 8, device},
	};

	/* What did not come from a device is none of a flow's. */
	if (!device || bpf_skb_store_bytes(skb, SOURCE_ADDRESS, &origin, sizeof(origin), 0))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

/* From the process to where it had come from. */
SEC("tc")
int lot_ingress(struct __sk_buff *skb)
{
	struct whence origin;
	__u32 device;

	if (bpf_skb_load_bytes(skb, SOURCE_ADDRESS, &origin, sizeof(origin)))
		return TC_ACT_SHOT;
	if (origin.tag[0] != TAG0 || origin.tag[1] != TAG1)
		return TC_ACT_SHOT;
	device = (__u32)origin.device[0] << 24 | (__u32)origin.device[1] << 16 | (__u32)origin.device[2] << 8 | origin.device[3];
	return bpf_redirect(device, BPF_F_INGRESS);
}

char _license[] SEC("license") = "Dual BSD/GPL";
