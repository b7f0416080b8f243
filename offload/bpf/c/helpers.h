/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel's helper functions that the programs call, by number, and the macros in
 * which maps, programs and licences are written down for the loader.
 */
#ifndef BATON_HELPERS_H
#define BATON_HELPERS_H

#include "kernel.h"

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define __unused __attribute__((unused))

/* A map's attributes, as types from which the loader reads them. */
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name
#define __array(name, value) typeof(value) *name[]

#define NULL ((void *)0)

static void *(*bpf_map_lookup_elem)(void *map, const void *key) __unused = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) __unused = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) __unused = (void *)3;
static __u64 (*bpf_ktime_get_ns)(void) __unused = (void *)5;
static __u32 (*bpf_get_prandom_u32)(void) __unused = (void *)7;
static long (*bpf_skb_store_bytes)(struct __sk_buff *skb, __u32 offset, const void *from, __u32 len, __u64 flags) __unused = (void *)9;
static long (*bpf_l4_csum_replace)(struct __sk_buff *skb, __u32 offset, __u64 from, __u64 to, __u64 flags) __unused = (void *)11;
static long (*bpf_clone_redirect)(struct __sk_buff *skb, __u32 ifindex, __u64 flags) __unused = (void *)13;
static long (*bpf_redirect)(__u32 ifindex, __u64 flags) __unused = (void *)23;
static long (*bpf_skb_load_bytes)(const void *skb, __u32 offset, void *to, __u32 len) __unused = (void *)26;
static __s64 (*bpf_csum_diff)(__be32 *from, __u32 from_size, __be32 *to, __u32 to_size, __u32 seed) __unused = (void *)28;
static long (*bpf_skb_change_type)(struct __sk_buff *skb, __u32 type) __unused = (void *)32;
static long (*bpf_skb_change_tail)(struct __sk_buff *skb, __u32 len, __u64 flags) __unused = (void *)38;
static long (*bpf_skb_pull_data)(struct __sk_buff *skb, __u32 len) __unused = (void *)39;
static __s64 (*bpf_csum_update)(struct __sk_buff *skb, __u32 sum) __unused = (void *)40;
static long (*bpf_skb_adjust_room)(struct __sk_buff *skb, __s32 len_diff, __u32 mode, __u64 flags) __unused = (void *)50;
static long (*bpf_fib_lookup)(void *ctx, struct bpf_fib_lookup *params, int len, __u32 flags) __unused = (void *)69;
static long (*bpf_sk_release)(void *sk) __unused = (void *)86;
static long (*bpf_sk_assign)(void *ctx, void *sk, __u64 flags) __unused = (void *)124;
static long (*bpf_ringbuf_output)(void *ringbuf, void *data, __u64 size, __u64 flags) __unused = (void *)130;
static long (*bpf_redirect_neigh)(__u32 ifindex, struct bpf_redir_neigh *params, int len, __u64 flags) __unused = (void *)152;
static __u64 (*bpf_ktime_get_coarse_ns)(void) __unused = (void *)160;
static long (*bpf_check_mtu)(void *ctx, __u32 ifindex, __u32 *mtu, __s32 len_diff, __u64 flags) __unused = (void *)163;
static long (*bpf_loop)(__u32 n, void *callback, void *ctx, __u64 flags) __unused = (void *)181;
static __u64 (*bpf_xdp_get_buff_len)(struct xdp_md *xdp) __unused = (void *)188;
static long (*bpf_xdp_load_bytes)(struct xdp_md *xdp, __u32 offset, void *to, __u32 len) __unused = (void *)189;
static long (*bpf_xdp_store_bytes)(struct xdp_md *xdp, __u32 offset, void *from, __u32 len) __unused = (void *)190;

#endif
