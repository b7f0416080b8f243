/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The maps of the guard. The structs are shared with Go through the generated types. */
#ifndef BATON_GUARD_H
#define BATON_GUARD_H

#include "address.h"
#include "helpers.h"

/* What a client asks for. */
struct frontend {
	struct address address;
	__be16 port;
	__u8 protocol;
	__u8 pad;
};

/* What answers at a frontend. */
enum answer {
	ANSWER_OWN,    /* whatever socket has the address and port: the frontend's own */
	ANSWER_SHARED, /* a socket that many frontends share */
	ANSWER_SILENT, /* a socket that swallows all: the client hears nothing */
	ANSWER_REFUSE, /* nothing, as if no socket were there */
	ANSWERS,
};

/* What answers at a frontend, by who asks. */
struct rule {
	enum answer all;    /* everybody, but for what sources says */
	enum answer inside; /* clients that are WHO_INSIDE */
	__u32 sources;      /* the set in guard_sources that says who is who; 0 = none */
};

/* Who asks. A client of which a set of sources says nothing gets no answer. */
enum who {
	WHO_ALLOWED = 1 << 0,
	WHO_INSIDE = 1 << 1,
};

/* Sources of one set that are the same to it. */
struct source {
	__u32 prefix; /* in bits, from set on */
	__u32 set;
	struct address address;
};

/* What became of the packets that the guard did not leave to the kernel. */
enum count {
	COUNT_NONE,      /* left to the kernel, and not counted */
	COUNT_SHARED,    /* given to a shared socket */
	COUNT_SILENT,    /* swallowed */
	COUNT_REFUSED,   /* refused at a frontend */
	COUNT_CLOSED,    /* refused at a VIP's port that is no frontend */
	COUNT_NO_SOCKET, /* refused because the socket that should answer was not there */
	COUNT_DENIED,    /* swallowed because of who asked */
	COUNTS,
};

/* Slots of guard_sockets; each holds a socket of one protocol and family. */
enum slot {
	SLOT_IPV6 = 1 << 0,
	SLOT_UDP = 1 << 1,
	SLOT_SILENT = 1 << 2,
	SLOTS = 1 << 3,
};

/* This table and the next are sized when they are loaded. A frontend at the wildcard address is at every address that
 * is no VIP's and has none of its own at that port. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__uint(max_entries, 1);
	__type(key, struct frontend);
	__type(value, struct rule);
} guard_frontends SEC(".maps");

/* The addresses that answer at their frontends only. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__uint(max_entries, 1);
	__type(key, struct address);
	__type(value, __u8); /* not read */
} guard_vips SEC(".maps");

/* Sets of sources. The number of entries is a bound: each is allocated when it is made. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__uint(max_entries, 1 << 18);
	__type(key, struct source);
	__type(value, enum who);
} guard_sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, SLOTS);
	__type(key, enum slot);
	__type(value, __u64);
} guard_sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, enum count);
	__type(value, __u64);
} guard_counts SEC(".maps");

#endif
