/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The maps of the flow programs. All but flow_scratch can be pinned. */
#ifndef BATON_FLOWMAPS_H
#define BATON_FLOWMAPS_H

#include "flow.h"
#include "steer.h"
#include "packet.h"

/* Two elements a flow. Sized when it is loaded, as are the slots and notes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct tuple4);
	__type(value, struct element4);
} flows4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct tuple);
	__type(value, struct element6);
} flows6 SEC(".maps");

/* Slot 0 is not used. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct slot);
} flow_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, __u32); /* the slot */
	__type(value, struct note);
} flow_notes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} flow_settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__uint(max_entries, 1024);
	__type(key, __u32); /* the device */
	__type(value, struct port);
} flow_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} flow_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FLOW_COUNTS);
	__type(key, enum flow_count);
	__type(value, __u64);
} flow_counts SEC(".maps");

/* What the programs work in, one at a time on each CPU. */
struct scratch {
	struct packet packet;
	struct tuple4 tuple4; /* that is looked for */
	struct element element; /* that was found */
	struct quoted quoted; /* and the tuple that answers to it: see quoted.h */
	struct tuple asked;
	struct question question;
	struct out out;
	struct bpf_fib_lookup fib;
	union {
		struct error4 error4; /* that is being made */
		struct error6 error6;
	};
	/* For mode steer: */
	struct tuple back; /* of the backend's answers */
	struct tuple other; /* of a direction that is looked for */
	struct element4 new4;
	struct element6 new6;
	struct choice choice;
	struct frontend frontend;
	struct client_of client;
	struct pieces pieces;
	struct steer_event event;
	__u32 ended; /* the state of a flow that this packet has ended, until that is told; 0 = it has not */

	__u32 why;       /* a flow may not begin */
	__u32 way_known; /* out is where a flow's first packet goes */

	__u64 telling_at; /* of beginnings that are told at once; see life.h */
	__u64 telling;
	__u64 budget_at; /* of errors that are made here; see error.h */
	__u64 budget;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} flow_scratch SEC(".maps");

static __always_inline struct scratch *scratch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&flow_scratch, &zero);
}

#endif
