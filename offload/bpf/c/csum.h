/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Internet checksums (RFC 1071, RFC 1624). Sums are of 32-bit words as they lie in memory. */
#ifndef BATON_CSUM_H
#define BATON_CSUM_H

#include "address.h"
#include "helpers.h"

/* csum_words adds a sum up to 32 bits. */
static __always_inline __u32 csum_words(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	return (sum & 0xffffffff) + (sum >> 32);
}

/* csum_fold adds it up to 16. */
static __always_inline __u16 csum_fold(__u64 sum)
{
	__u32 s = csum_words(sum);

	s = (s & 0xffff) + (s >> 16);
	return (s & 0xffff) + (s >> 16);
}

/* csum_apply changes a checksum by a difference. */
static __always_inline __sum16 csum_apply(__sum16 check, __u64 diff)
{
	return ~csum_fold((__u64)(__u16)~check + diff);
}

static __always_inline __u64 csum_change(__be32 from, __be32 to)
{
	return (__u64)(__u32)~from + to;
}

static __always_inline __u64 csum_change_address(const struct address *from, const struct address *to)
{
	return csum_change(from->words[0], to->words[0]) + csum_change(from->words[1], to->words[1]) +
	       csum_change(from->words[2], to->words[2]) + csum_change(from->words[3], to->words[3]);
}

static __always_inline __u64 csum_address(const struct address *a)
{
	return (__u64)a->words[0] + a->words[1] + a->words[2] + a->words[3];
}

#endif
