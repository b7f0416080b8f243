package testnet

import "golang.org/x/sys/unix"

// ethernetHeader is its length, in bytes.
const ethernetHeader = 14

// Where the filter of a Capture looks behind an Ethernet header: RFC 791, 3.1;
// RFC 8200, 3; RFC 9293, 3.1; RFC 4443, 2.1.
const (
	atEthertype     = 12
	atFragment4     = ethernetHeader + 6
	atTransport     = ethernetHeader + 40 // IPv6 without extension headers
	atTCPFlags      = 13                  // in the TCP header
	tcpFinSynRst    = 0x07
	firstND, lastND = 133, 137 // ICMPv6 types
)

// captureFilter is a classic BPF program. Jumps are counted from the next
// instruction.
func captureFilter() []unix.SockFilter {
	const (
		ldh, ldb, ldbx = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, unix.BPF_LD | unix.BPF_B | unix.BPF_IND
		ihl            = unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH // x = 4 * (packet[k] & 15)
		jeq, jset, jge = unix.BPF_JMP | unix.BPF_JEQ, unix.BPF_JMP | unix.BPF_JSET, unix.BPF_JMP | unix.BPF_JGE
		jgt            = unix.BPF_JMP | unix.BPF_JGT
		ret            = unix.BPF_RET
	)
	return []unix.SockFilter{
		/*  0 */ {Code: ldh, K: atEthertype},
		/*  1 */ {Code: jeq, K: unix.ETH_P_IP, Jt: 1},
		/*  2 */ {Code: jeq, K: unix.ETH_P_IPV6, Jt: 8, Jf: 16},
		/*  3 */ {Code: ldb, K: protocol4},
		/*  4 */ {Code: jeq, K: unix.IPPROTO_ICMP, Jt: 15},
		/*  5 */ {Code: jeq, K: unix.IPPROTO_TCP, Jf: 13},
		/*  6 */ {Code: ldh, K: atFragment4},
		/*  7 */ {Code: jset, K: 0x1fff, Jt: 11},
		/*  8 */ {Code: ihl, K: ethernetHeader},
		/*  9 */ {Code: ldbx, K: ethernetHeader + atTCPFlags},
		/* 10 */ {Code: jset, K: tcpFinSynRst, Jt: 9, Jf: 8},
		/* 11 */ {Code: ldb, K: header6},
		/* 12 */ {Code: jeq, K: unix.IPPROTO_TCP, Jt: 4},
		/* 13 */ {Code: jeq, K: unix.IPPROTO_ICMPV6, Jf: 5},
		/* 14 */ {Code: ldb, K: atTransport},
		/* 15 */ {Code: jge, K: firstND, Jf: 4},
		/* 16 */ {Code: jgt, K: lastND, Jt: 3, Jf: 2},
		/* 17 */ {Code: ldb, K: atTransport + atTCPFlags},
		/* 18 */ {Code: jset, K: tcpFinSynRst, Jt: 1},
		/* 19 */ {Code: ret, K: 0},
		/* 20 */ {Code: ret, K: 64 << 10},
	}
}
