/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Frames that wait in a process carry the device that they had come from in the place of their
 * source address, which nobody asks for any more. They keep it when they arrive there again.
 */
#ifndef BATON_ORIGIN_H
#define BATON_ORIGIN_H

#include "helpers.h"

#define SOURCE_ADDRESS 6 /* its offset in an Ethernet header */

struct whence {
	__u8 tag[2];
	__u8 device[4]; /* big endian */
};

#define TAG0 0x02 /* a locally administered address */
#define TAG1 0xba

/* returned reports whether a frame has been in a process. Whoever writes such an address himself has his packet treated as if
 * it had been there, in vain. */
static __always_inline int returned(struct __sk_buff *skb)
{
	__u8 tag[2];

	return !bpf_skb_load_bytes(skb, SOURCE_ADDRESS, tag, sizeof(tag)) && tag[0] == TAG0 && tag[1] == TAG1;
}

#endif
