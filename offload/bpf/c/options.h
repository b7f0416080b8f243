/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* TCP's options (RFC 9293, RFC 7323, RFC 2018): where they are. */
#ifndef BATON_OPTIONS_H
#define BATON_OPTIONS_H

#include "parse.h"

enum {
	TCPOPT_EOL = 0,
	TCPOPT_NOP = 1,
	TCPOPT_SACK_PERMITTED = 4,
	TCPOPT_SACK = 5,
	TCPOPT_TIMESTAMP = 8,
};

enum {
	TCPOLEN_SACK_PERMITTED = 2,
	TCPOLEN_SACK_BASE = 2,
	TCPOLEN_SACK_BLOCK = 8,
	TCPOLEN_TIMESTAMP = 10,
};

struct walk {
	struct packet *packet;
};

/* Notes an option and goes to the next. Like the kernel, it stops at what makes no sense,
 * and of an option that comes twice the second counts. */
static long option(__u32 i __unused, struct walk *w)
{
	struct packet *p = w->packet;
	__u32 at = p->option_at;
	__u8 len;

	if (at >= p->transport_len || at >= TCP_MAX || p->transport[at & 63] == TCPOPT_EOL)
		return 1;
	if (p->transport[at & 63] == TCPOPT_NOP) {
		p->option_at = at + 1;
		return 0;
	}
	len = p->transport[(at + 1) & 63];
	if (at + 1 >= p->transport_len || len < 2 || at + len > p->transport_len)
		return 1;
	switch (p->transport[at & 63]) {
	case TCPOPT_TIMESTAMP:
		if (len == TCPOLEN_TIMESTAMP)
			p->ts_at = at + 2;
		break;
	case TCPOPT_SACK:
		if (len >= TCPOLEN_SACK_BASE + TCPOLEN_SACK_BLOCK && (len - TCPOLEN_SACK_BASE) % TCPOLEN_SACK_BLOCK == 0) {
			p->sack_at = at + TCPOLEN_SACK_BASE;
			p->sack_len = len - TCPOLEN_SACK_BASE;
		}
		break;
	case TCPOPT_SACK_PERMITTED:
		if (len == TCPOLEN_SACK_PERMITTED)
			p->sack_permitted_at = at;
		break;
	}
	p->option_at = at + len;
	return 0;
}

/* Where nearly every segment has its timestamps: NOP, NOP, 8, 10. */
#define USUAL_OPTIONS 0x0101080a

/* parse_options reports 0 if they cannot be had. */
static __always_inline int parse_options(struct origin from, struct packet *p)
{
	struct walk w = {.packet = p};
	__u32 len = p->transport_len - TCP_LEN;

	if (p->tuple.protocol != IPPROTO_TCP || !len)
		return 1;
	if (len > TCP_MAX - TCP_LEN)
		return 0;
	if (load(from, p->transport_at + TCP_LEN, p->transport + TCP_LEN, counted(len)))
		return 0;
	if (p->transport_len == TCP_LEN + 12 && get32(p, TCP_LEN) == USUAL_OPTIONS) {
		p->ts_at = TCP_LEN + 4;
		return 1;
	}
	p->option_at = TCP_LEN;
	bpf_loop(TCP_MAX - TCP_LEN, option, &w, 0);
	return 1;
}

#endif
