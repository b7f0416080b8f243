/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The maps of the divert program. The structs are shared with Go through the generated
 * types. */
#ifndef BATON_DIVERT_H
#define BATON_DIVERT_H

#include "address.h"
#include "sockets.h"

/* The bit of a packet's mark that a policy-routing rule of ours looks for. */
const volatile __u32 divert_mark;

/* Who answers: a backend of a service that keeps its clients' addresses. */
struct peer {
	struct address address;
	__be16 port;
	__u8 protocol;
	__u8 pad;
};

/* What tells the fragments of one packet from those of others. */
struct fragment {
	struct address source;
	struct address destination;
	__be32 id;
	__u8 protocol;
	__u8 pad[3];
};

/* The hardware address of the bridge that a device is a port of. */
struct bridge {
	__u8 address[6];
	__u8 pad[2];
};

/* What became of the packets that are for sockets of ours. The others are not counted. */
enum diverted {
	DIVERTED_PACKET,
	DIVERTED_ERROR,    /* an ICMP error about a packet of such a socket */
	DIVERTED_FRAGMENT, /* a fragment after the first */
	DIVERTED_FRAME,    /* of these, taken out of bridging */
	DIVERTED,
};

struct peers {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__uint(max_entries, 1); /* sized when it is loaded */
	__type(key, struct peer);
	__type(value, __u8); /* not read */
};

struct peers divert_first SEC(".maps");

/* One table, in whose place a larger one can be put. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct peers);
} divert_peers SEC(".maps") = { .values = { &divert_first } };

/* By the index of the port. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct bridge);
} divert_ports SEC(".maps");

/* Packets whose first fragment was for a socket of ours. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct fragment);
	__type(value, __u8); /* not read */
} divert_fragments SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DIVERTED);
	__type(key, enum diverted);
	__type(value, __u64);
} divert_counts SEC(".maps");

#endif
