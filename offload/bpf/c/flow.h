/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The flows that the program carries, and what it shares with Go: an ABI. A program and a
 * process of different builds may meet over pinned maps, so a change of any struct or of
 * the meaning of a field asks for another flowsLayout (pin.go).
 */
#ifndef BATON_FLOW_H
#define BATON_FLOW_H

#include "address.h"

/* The addresses and ports of a packet as it arrives; the key of one of IPv6. */
struct tuple {
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	__u8 protocol;
	__u8 pad[3]; /* zero */
};

/* Which way a packet travels. */
enum direction {
	TO_BACKEND,
	TO_CLIENT,
	DIRECTIONS,
};

/* Whose an element is. */
struct whose {
	__u32 of;         /* the slot in flow_slots, never 0; of a steered flow the backend */
	__u32 generation; /* of the slot when the element was made; of a steered flow the lower half of when it was born */
	__u8 direction;
	__u8 steered;
	__u8 picked; /* of a steered flow: how its backend was */
	__u8 pad;
};

/* What becomes of a steered flow, whose state is all in its elements. To a flow that was handed off this means nothing:
 * the kernel may use an element's memory for another one while a program still writes here. */
struct life {
	__u32 born;    /* the upper half of CLOCK_MONOTONIC in ns, the same in both directions */
	__u32 state;   /* enum life_state, and a generation; that of the way to the backend counts */
	__u32 end;     /* the highest end of TCP's numbers */
	__u32 last;    /* CLOCK_MONOTONIC in steps of 2^LAST_SHIFT ns; of the way to the backend: of both */
	__u64 packets; /* as on the wire */
	__u64 bytes;   /* of payload; of TCP each counts once */
};

#define LAST_SHIFT 20 /* about a millisecond; it wraps after 52 days */

/* What is known of a tuple: whose it is, and what the packet leaves with. One map for each family: an element of IPv4
 * takes 128 bytes of the kernel, with 48 of its own, 16 of the key and 8 of its allocator. */
struct tuple4 {
	__be32 source;
	__be32 destination;
	__be16 source_port;
	__be16 destination_port;
	__u8 protocol;
	__u8 pad[3]; /* zero */
};

struct element4 {
	__be32 source;
	__be32 destination;
	__be16 source_port;
	__be16 destination_port;
	struct whose whose;
	struct life life;
};

struct element6 {
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	struct whose whose;
	struct life life;
};

/* The same for both, as the program works with it: a copy. */
struct element {
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	struct whose whose;
};

/* What becomes of a flow's packets. Userspace sets it, but for GATE_STALE. */
enum gate {
	GATE_WATCH,   /* to the stack, and remembered */
	GATE_DRAIN,   /* new data is held; acknowledgements and what was seen before still pass */
	GATE_FREEZE,  /* everything is held */
	GATE_FORWARD, /* on to the other side */
	GATE_RESET,   /* answered with a reset */
	GATE_STALE,   /* to the stack, as if the flow were not there: a new one has begun with its addresses */
	GATES,
};

/* What is asked of the SYN of our own that opens the backend's side. */
enum mirror {
	MIRROR_NO_TIMESTAMPS = 1 << 0, /* the client does without, so the backend must */
	MIRROR_NO_SACK = 1 << 1,
};

/* What is added to the numbers of one direction. All zero: they stay as they are. */
struct rewrite {
	__u32 sequence;
	__u32 acknowledgement; /* and the edges of SACK blocks */
	__u32 ts_value;
	__u32 ts_echo; /* not to an echo of 0, which stands for none */
	__s8 shift;    /* of the window: left, or right when negative */
	__u8 scale;    /* the shift that the sender's windows are announced with; 0 = not known */
	__u8 pad[2];
};

/* What has been seen of one direction. */
enum seen {
	SEEN_DATA = 1 << 0,         /* track.end counts */
	SEEN_ACK = 1 << 1,          /* track.acked and track.window count */
	SEEN_TIMESTAMP = 1 << 2,    /* track.ts_value counts */
	SEEN_HELD_STAMP = 1 << 3,   /* track.ts_held counts: set while the gate holds */
	SEEN_FIN = 1 << 4,          /* track.fin counts */
	SEEN_FIN_ACKED = 1 << 5,    /* the other side has it */
	SEEN_RESET = 1 << 6,        /* with the number that the receiver expects, when forwarding; any that went to the stack */
	SEEN_DIRTY = 1 << 7,        /* a fragment or such went to the stack that the rest does not account for */
	SEEN_FORWARDED = 1 << 8,    /* a packet went on to the other side */
	SEEN_HELD = 1 << 9,         /* something was held */
	SEEN_HELD_RESET = 1 << 10,  /* a reset was, with the number that the receiver expects as far as it is known */
};

/* The numbers of one direction's packets, as they arrive. The program adds to enter before
 * it reads a gate that may hold, and to leave when all that follows from it is written. */
struct track {
	__u32 enter;
	__u32 leave;
	enum seen seen;
	__u32 end;      /* the highest end of data or FIN that was let through */
	__u32 acked;    /* the highest acknowledgement */
	__u32 window;   /* that came with it, as on the wire */
	__u32 ts_value; /* of the last packet that was let through */
	__u32 ts_held;  /* of the first that was held */
	__u32 fin;      /* the end of the FIN */
};

/* What one direction has carried to the other side. */
struct carried {
	__u64 packets; /* as on the wire */
	__u64 bytes;   /* of payload; of TCP each counts once */
	__u64 at;      /* CLOCK_MONOTONIC in ns, of the last packet to the stack or to the other side */
};

/* The way out, looked up anew when it is old. Odd version: being written. */
struct way {
	__u64 at;
	__be32 next_hop[4]; /* of an IPv4 one the first word */
	__u32 device;       /* 0 = none is known */
	__u32 mtu;
	__u32 family; /* of the next hop */
	__u32 version;
};

struct path {
	struct rewrite rewrite; /* userspace writes it, while nothing is forwarded */
	__u32 device;           /* where our own stack was seen to send; for want of a way */
	struct carried carried;
	struct way way;
	struct track track;
	__u32 pad;
};

/* One for each flow. Three pairs of cache lines: what both directions read, and each one's own. */
struct slot {
	enum gate gate;
	__u32 generation; /* odd while the slot is in use */
	enum mirror mirror;
	__u8 protocol;
	__u8 pad[3];
	__u64 added_at; /* CLOCK_MONOTONIC in ns */
	__u64 room[5];
	struct path paths[DIRECTIONS];
};

_Static_assert(sizeof(struct tuple) == 40 && sizeof(struct tuple4) == 16, "no holes");
_Static_assert(sizeof(struct element4) == 56 && sizeof(struct element6) == 80, "no holes");
_Static_assert(sizeof(struct path) == 128 && sizeof(struct slot) == 320, "less than 1 KiB a flow");

/* What userspace keeps with a flow; the program does not read it. */
struct note {
	__u8 bytes[256];
};

struct settings {
	__u32 lot; /* the device that held packets wait at; 0 = they are dropped */
};

/* A device that XDP may take packets from and send to. */
struct port {
	__u8 mac[6];
	__u8 pad[2];
};

/* What userspace is told of. */
enum happening {
	EVENT_FIRST,   /* a direction's first packet went on to the other side */
	EVENT_FIN,     /* a direction is closed: its FIN is acknowledged */
	EVENT_OVER,    /* both are */
	EVENT_RESET,   /* the sender of this direction reset the flow */
	EVENT_STALE,   /* a new flow has begun with its addresses */
	EVENT_TOO_BIG, /* a packet did not fit its way out: value is what fits */
};

struct event {
	__u32 slot;
	__u32 generation;
	enum happening happening;
	enum direction direction;
	__u32 value;
	__u32 pad;
	__u64 at; /* CLOCK_MONOTONIC in ns */
};

/* What became of packets; those that went to the stack from a watched flow are not counted. */
enum flow_count {
	FLOW_COUNT_FORWARDED,   /* on to the other side; as on the wire */
	FLOW_COUNT_FAST,        /* of those, in XDP */
	FLOW_COUNT_HELD,        /* dropped while the gate held */
	FLOW_COUNT_PARKED,      /* put aside while the gate held */
	FLOW_COUNT_RESET,       /* answered with a reset */
	FLOW_COUNT_TOO_BIG,     /* did not fit; the sender was told */
	FLOW_COUNT_EXPIRED,     /* at the end of their time to live; the sender was told */
	FLOW_COUNT_UNTOLD,      /* of those two, the sender was not told: too many, or it could not be */
	FLOW_COUNT_TRANSLATED,  /* ICMP errors, passed on to the sender of what they are about */
	FLOW_COUNT_MIRRORED,    /* SYNs of ours that options were taken from */
	FLOW_COUNT_OWN,         /* what our own stack sent on a forwarded flow; dropped */
	FLOW_COUNT_NO_WAY,      /* there is no way out; dropped */
	FLOW_COUNT_ODD,         /* TCP in fragments or with IP options on a forwarded flow; dropped */
	FLOW_COUNT_FAILED,      /* the kernel refused a step; dropped */
	FLOW_COUNT_STALE,       /* SYNs at flows that are over */
	FLOW_COUNTS,
};

#endif
