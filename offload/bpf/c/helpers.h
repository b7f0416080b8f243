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

/* A map's attributes, as types from which the loader reads them. */
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name

#define NULL ((void *)0)

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_sk_release)(void *sk) = (void *)86;
static long (*bpf_sk_assign)(void *ctx, void *sk, __u64 flags) = (void *)124;

#endif
