/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The maps of mode steer. All but steer_order are pinned with those of flowmaps.h; flows are in flows4 and flows6. */
#ifndef BATON_STEERMAPS_H
#define BATON_STEERMAPS_H

#include "steer.h"
#include "helpers.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct steering);
} steer_settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__uint(max_entries, 1 << 16);
	__type(key, struct frontend);
	__type(value, struct entrance);
} steer_frontends SEC(".maps");

/* A set of sources is replaced as a whole: its number is that of what is in steer_sources. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__uint(max_entries, 1 << 14);
	__type(key, __u32);
	__type(value, __u32);
} steer_sets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__uint(max_entries, 1 << 18);
	__type(key, struct source);
	__type(value, __u32); /* enum client */
} steer_sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__uint(max_entries, 1 << 15);
	__type(key, __u32);
	__type(value, struct service);
} steer_services SEC(".maps");

struct name {
	__u8 bytes[256];
};

/* The program does not read it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 15);
	__type(key, __u32); /* the service */
	__type(value, struct name);
} steer_names SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << 15);
	__type(key, __u32); /* the service */
	__type(value, struct usage);
} steer_usage SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__uint(max_entries, 1 << 17);
	__type(key, __u32);
	__type(value, struct backend);
} steer_backends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << 17);
	__type(key, __u32); /* the backend */
	__type(value, __u64);
} steer_open SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__uint(max_entries, 1 << 16);
	__type(key, __u32);
	__type(value, struct pool);
} steer_pools SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__uint(max_entries, 1 << 16);
	__type(key, struct table_at);
	__type(value, struct table);
} steer_tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__uint(max_entries, 1 << 17);
	__type(key, struct member);
	__type(value, __u32); /* not read */
} steer_members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, __u32); /* the pool */
	__type(value, struct tickets);
} steer_tickets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 17);
	__type(key, struct client_of);
	__type(value, struct remembered);
} steer_affinity SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 12);
	__type(key, struct pieces);
	__type(value, struct pieces_to);
} steer_pieces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, struct tuple);
	__type(value, struct asked);
} steer_asked SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, struct tuple);
	__type(value, __u32); /* the backend */
} steer_answers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} steer_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STEER_COUNTS);
	__type(key, enum steer_count);
	__type(value, __u64);
} steer_counts SEC(".maps");

/* What a process asks of the programs of orders, one thing at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct order);
} steer_order SEC(".maps");

static __always_inline struct steering *steering(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&steer_settings, &zero);
}

/* steers reports whether there is anything to steer. */
static __always_inline int steers(void)
{
	struct steering *all = steering();

	return all && *(volatile __u32 *)&all->on;
}

static __always_inline void steer_count(enum steer_count what)
{
	__u64 *n = bpf_map_lookup_elem(&steer_counts, &what);

	if (n)
		*n += 1; /* this CPU's */
}

#endif
