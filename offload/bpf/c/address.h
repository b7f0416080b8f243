/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef BATON_ADDRESS_H
#define BATON_ADDRESS_H

#include "kernel.h"

/* An address of either family; IPv4 as ::ffff:a.b.c.d. Words are in network byte order. */
struct address {
	__be32 words[4];
};

#endif
