/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the program is told for mode steer, and what it tells: an ABI like flow.h. Package
 * lb/steer/program has the words that these are made of; numbers are those that it gives out.
 */
#ifndef BATON_STEER_H
#define BATON_STEER_H

#include "flow.h"

/* What a client asks for. */
struct frontend {
	struct address address;
	__be16 port;
	__u8 protocol;
	__u8 pad;
};

/* What a client is. */
enum client {
	CLIENT_OUTSIDE,
	CLIENT_INSIDE,
	CLIENT_REFUSED,
	CLIENT_DROPPED,
	CLIENT_UNSAID, /* as if nothing were said of them */

	CLIENT_KEPT = 1 << 8, /* beside one of those: their address is, where the backend allows it */
};

/* Who answers at a frontend, and whom. */
struct entrance {
	__u32 service;
	__u32 outside; /* pools */
	__u32 inside;  /* 0 = as outside */
	__u32 sources; /* 0 = everybody is what closed says */
	enum client closed; /* those that sources say nothing of */
	__u32 pad;
};

/* Clients that are the same to a set. */
struct source {
	__u32 prefix; /* in bits, from set on */
	__u32 set;
	struct address address;
};

struct service {
	__u64 affinity; /* ns; 0 = none */
	__u64 times[5]; /* ns: opening, idle, half closed, closed, of UDP; only userspace looks at them */
	__u32 connections;
	__u32 sessions;
	__u32 new_per_second;
	__u32 pad;
};

/* What a service's limits are held against. */
struct usage {
	__u32 connections;
	__u32 sessions;
	__u64 rate; /* the second, and how many flows have begun in it */
};

/* Which clients' addresses a backend may see: those that are next to us, on another link than the backend, and ... */
enum keep {
	KEEP = 1 << 0,
	KEEP_FAR = 1 << 1,    /* those behind a router, on another link */
	KEEP_BRIDGED = 1 << 3, /* those on the same bridge of this host: but by the stack, which alone gets the answers */
	KEEP_BESIDE = 1 << 2, /* those behind a router on the link that the backend is next to us on: that router sends answers here */
};

struct backend {
	struct address address;
	struct address masked; /* what clients come from whose address is not kept; zero = they cannot */
	__be16 port;
	__u8 ipv6;
	__u8 takes; /* new flows */
	enum keep keep;
	__u32 limit; /* 0 = none */
	__u32 service;
};

/* What a new flow meets. */
enum pool_answer {
	ANSWER_STACK,
	ANSWER_REFUSE,
	ANSWER_DROP,
	ANSWER_TICKET,
	ANSWER_TABLE,
	ANSWER_PACKET, /* as the process says, who gets it first */
};

struct pool {
	__u32 service;
	enum pool_answer answer;
	__u8 refuse_absent; /* while the process is away */
	__u8 by_address;
	__u8 pad[2];
	__u32 version; /* of its table */
	__u32 length;
};

/* A piece of a pool's table. A table is written under a new version, and then the pool names that. */
struct table_at {
	__u32 pool;
	__u32 version;
	__u32 piece;
};

#define TABLE_PIECE 64

struct table {
	__u32 backends[TABLE_PIECE];
};

struct member {
	__u32 pool;
	__u32 backend;
};

#define TICKETS 256

/* Choices that wait. Both numbers only grow; userspace adds at the tail, by an order. */
struct tickets {
	__u64 head;
	__u64 tail;
	__u32 backends[TICKETS];
};

struct client_of {
	__u32 service;
	struct address address;
};

/* Which backend a client was given last. */
struct remembered {
	__u64 at;
	__u32 backend;
	__u32 pad;
};

/* A flow whose first packets go through the process: see ask.h. */
struct asked {
	__u64 turns; /* in the upper half how many have gone there, in the lower one how many are back */
	__u64 at;    /* CLOCK_MONOTONIC in ns: when the last came back; before, when the first went */
	__u64 since; /* when the first went */
	__u32 pool;
	__u32 pad;
};

/* The process's answer, else a backend. */
#define ANSWERED_NONE 0xffffffff

/* A datagram or segment in fragments: where they go, after the first. */
struct pieces {
	struct address source;
	struct address destination;
	__be32 id;
	__u8 protocol;
	__u8 pad[3];
};

struct pieces_to {
	struct address source;
	struct address destination;
};

/* Where a steered flow stands: enum life_state in its lower half, and in its upper one what tells it from a later flow in
 * the same memory. */
enum life_state {
	LIFE_REPLIED = 1 << 0, /* the backend has agreed */
	LIFE_OPEN = 1 << 1,    /* and the client to that: it counts, until it is closed */
	LIFE_FIN_CLIENT = 1 << 2,
	LIFE_FIN_BACKEND = 1 << 3,
	LIFE_BACKEND_FIRST = 1 << 4, /* the first who closed was the backend */
	LIFE_WAS_RESET = 1 << 5,
	LIFE_CLOSED = 1 << 6,
	LIFE_REFUSE = 1 << 7, /* userspace has ended it: what comes is answered with a reset */
	LIFE_GONE = 1 << 8,   /* somebody is deleting it */
	LIFE_TOLD = 1 << 10,  /* of its beginning userspace has been told */
	LIFE_FAILED = 1 << 11, /* of that it did not reach its backend userspace has been told */
	LIFE_WAITS = 1 << 9,  /* its first datagrams are on their way through the process; the others follow them */
};

enum picked {
	PICKED_ALGORITHM,
	PICKED_AFFINITY,
};

/* What a choice was made of. */
struct choice {
	__u32 backend; /* 0 = none */
	__u32 limited; /* one would have been, but for its limit */
	__u32 none;    /* the process has said so */
	__u32 waits;   /* LIFE_WAITS, or 0 */
	enum picked picked;
};

enum steer_happening {
	STEER_OPENED,
	STEER_HALF_SHUT,
	STEER_ENDED,
	STEER_FAILED, /* a router or the backend says that a packet has not reached it */
};

struct steer_event {
	struct address client;
	struct address frontend;
	struct address local;
	struct address backend;
	__be16 client_port;
	__be16 frontend_port;
	__be16 local_port;
	__be16 backend_port;
	__u64 born;
	__u64 at;
	enum steer_happening happening;
	enum life_state state;
	struct whose whose;
	__u32 service;
	__u8 protocol;
	__u8 pad[7];
	__u64 bytes[DIRECTIONS]; /* STEER_ENDED: what was carried; a new flow may take its place at once */
	__u64 packets[DIRECTIONS];
};

_Static_assert(sizeof(struct steer_event) == 152, "no holes");

/* To which events somebody listens. */
enum listening {
	LISTENS_NOT,
	LISTENS,        /* a flow's end, and its beginning: that of one that is short, among many, comes with its end */
	LISTENS_TO_ALL, /* whatever happens, at once */
};

/* One for the program. Userspace writes all but flows and asking, and without system calls. */
struct steering {
	__u64 beat;     /* CLOCK_MONOTONIC in ns: when the process was last there */
	__u64 flows;    /* there are */
	__u64 limit;    /* for so many there is room */
	__u32 on;       /* there has been a frontend */
	enum listening listened;
	__u16 first_port; /* of those that masked clients come from */
	__u16 ports;
	__u32 desk;      /* the device that first packets go to; 0 = nobody asks for them */
	__u64 asking;    /* the second, and how many flows have gone there in it; only the program writes it */
};

enum steer_count {
	STEER_COUNT_TICKETS,
	STEER_COUNT_TABLES,
	STEER_COUNT_AFFINITY,
	STEER_COUNT_REFUSED,
	STEER_COUNT_DROPPED,
	STEER_COUNT_REFUSED_SOURCE,
	STEER_COUNT_OVER_LIMIT,
	STEER_COUNT_FULL,
	STEER_COUNT_NO_PORT,
	STEER_COUNT_STRAY,
	STEER_COUNT_EVENTS_LOST,
	STEER_COUNT_PACKETS,  /* chosen by the process, of their first packet */
	STEER_COUNT_SENT_AWAY, /* flows that the process has refused, and counts */
	STEER_COUNT_UNASKED,  /* flows that were to be, but were too many, or could not be */
	STEER_COUNTS,
};

/* What userspace has done by a program run of its own, so that it happens to the flow that it means or not at all. */
#define ENDINGS 32

struct ending {
	struct tuple forth;
	struct tuple back;
	struct tuple4 forth4; /* the same, of IPv4 */
	struct tuple4 back4;
	__u64 born;
	__u32 last; /* it is to be the same, unless busy */
	__u32 busy;
	__u32 ipv6;
	__u32 pad;
};

struct order {
	__u32 pool;
	__u32 count;
	__u32 done;
	__u32 pad;
	__u32 backends[TICKETS];
	struct ending endings[ENDINGS];
};

#endif
