/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A packet's headers, copied out of it and put back when they are changed, so that the
 * same code serves tc and XDP, and no verifier has to follow pointers into packets.
 */
#ifndef BATON_PACKET_H
#define BATON_PACKET_H

#include "flow.h"
#include "helpers.h"

/* linux/if_ether.h */
struct ethhdr {
	__u8 h_dest[6];
	__u8 h_source[6];
	__be16 h_proto;
};

enum {
	ETH_P_IP = 0x0800,
	ETH_P_IPV6 = 0x86dd,
};

/* linux/ip.h */
struct iphdr {
	__u8 version_ihl;
	__u8 tos;
	__be16 tot_len;
	__be16 id;
	__be16 frag_off;
	__u8 ttl;
	__u8 protocol;
	__sum16 check;
	__be32 saddr;
	__be32 daddr;
};

enum {
	IP_DF = 0x4000,
	IP_MF = 0x2000,
	IP_OFFSET = 0x1fff,
};

/* linux/ipv6.h */
struct ipv6hdr {
	__be32 version_class_label;
	__be16 payload_len;
	__u8 nexthdr;
	__u8 hop_limit;
	struct address saddr;
	struct address daddr;
};

/* The first eight bytes of an extension header. */
struct extension {
	__u8 nexthdr;
	__u8 hdrlen; /* not of the fragment header */
	__be16 frag_off;
	__be32 id;
};

/* linux/tcp.h */
struct tcphdr {
	__be16 source;
	__be16 dest;
	__be32 seq;
	__be32 ack_seq;
	__u8 doff; /* in its upper half */
	__u8 flags;
	__be16 window;
	__sum16 check;
	__be16 urg_ptr;
};

enum {
	TCP_FIN = 1 << 0,
	TCP_SYN = 1 << 1,
	TCP_RST = 1 << 2,
	TCP_ACK = 1 << 4,
};

/* linux/udp.h */
struct udphdr {
	__be16 source;
	__be16 dest;
	__be16 len;
	__sum16 check;
};

/* linux/icmp.h, linux/icmpv6.h */
struct icmphdr {
	__u8 type;
	__u8 code;
	__sum16 checksum;
	__be32 rest; /* the mtu, for one */
};

struct error4 {
	struct iphdr ip;
	struct icmphdr icmp;
};

struct error6 {
	struct ipv6hdr ip;
	struct icmphdr icmp;
};

_Static_assert(sizeof(struct error4) == 28 && sizeof(struct error6) == 48, "no holes");

#define ETH_LEN sizeof(struct ethhdr)
#define IPV4_LEN sizeof(struct iphdr)
#define IPV6_LEN sizeof(struct ipv6hdr)
#define TCP_LEN sizeof(struct tcphdr)
#define UDP_LEN sizeof(struct udphdr)
#define TCP_MAX 60 /* with all its options */

struct packet {
	struct tuple tuple;
	union {
		struct iphdr ip4;
		struct ipv6hdr ip6;
	};
	union {
		struct tcphdr tcp;
		struct udphdr udp;
		__u8 transport[64]; /* with TCP's options */
	};
	__u32 network_at;
	__u32 transport_at;
	__u32 transport_len;
	__u32 length;  /* from the network header on */
	__u32 payload;
	__u32 segment; /* as length, of the largest packet on the wire that this will be */
	__u32 packets; /* that it will be */
	__u8 ipv6;
	__u8 odd;      /* has IP options or extension headers */
	__u8 fragment; /* the first of several */
	__u8 piece;    /* a later one: it has no ports */
	__u8 hops;     /* time to live, hop limit */
	/* Where TCP's options are in transport; 0 = it has none such. */
	__u8 option_at; /* while they are looked through */
	__u8 ts_at;
	__u8 sack_at;
	__u8 sack_len;
	__u8 sack_permitted_at;
	__u8 pad[2];
	__be32 id; /* of a fragment */
};

/* The beginning of a transport header, which every error quotes. */
struct ports {
	__be16 source;
	__be16 dest;
	__be32 seq; /* of TCP */
};

/* What an error quotes. */
struct quoted {
	union {
		struct iphdr ip4;
		struct ipv6hdr ip6;
	};
	struct ports ports;
	__u32 network_at;
	__u32 ports_at;
	__u8 protocol;
	__u8 unreachable; /* nobody has it where it was to go */
};

/* What is asked of routes, and the answer. */
struct question {
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	__u8 protocol;
	__u8 ipv6;
	__u32 device; /* that the packet came in by */
};

struct out {
	__u32 device;
	__u32 mtu;
	struct bpf_redir_neigh next; /* nh_family 0: the kernel asks its routes again */
};

/* Hides a value's history from the compiler, so that it cannot drop the check that a
 * verifier wants to see. */
#define opaque(value) asm volatile("" : "+r"(value))

/* counted is a length between 1 and 64, as it is, that a verifier believes to be that: those
 * of older kernels learn nothing from a comparison with 0. */
static __always_inline __u32 counted(__u32 len)
{
	len--;
	opaque(len);
	return (len & 63) + 1;
}

#define ntohs(value) __builtin_bswap16(value)
#define htons(value) __builtin_bswap16(value)
#define ntohl(value) __builtin_bswap32(value)
#define htonl(value) __builtin_bswap32(value)

static __always_inline void ipv4_address(struct address *to, __be32 from)
{
	to->words[0] = 0;
	to->words[1] = 0;
	to->words[2] = htonl(0xffff);
	to->words[3] = from;
}

static __always_inline int same(const struct address *a, const struct address *b)
{
	return a->words[0] == b->words[0] && a->words[1] == b->words[1] && a->words[2] == b->words[2] && a->words[3] == b->words[3];
}

static __always_inline __u32 get32(const struct packet *p, __u32 at)
{
	return (__u32)p->transport[at & 63] << 24 | (__u32)p->transport[(at + 1) & 63] << 16 |
	       (__u32)p->transport[(at + 2) & 63] << 8 | p->transport[(at + 3) & 63];
}

static __always_inline void put32(struct packet *p, __u32 at, __u32 value)
{
	p->transport[at & 63] = value >> 24;
	p->transport[(at + 1) & 63] = value >> 16;
	p->transport[(at + 2) & 63] = value >> 8;
	p->transport[(at + 3) & 63] = value;
}

#endif
