// Package datagram owns the transfer of UDP datagrams in batches on raw,
// non-blocking sockets: recvmmsg(2) and sendmmsg(2), with the kernel's own
// coalescing on both ends where it exists (UDP_GRO and UDP_SEGMENT, Linux 5.0
// and 4.18). What comes in as one datagram goes out as one, whole and once.
//
// Why not golang.org/x/net: its batches are for net.PacketConn, and with that
// for Go's poller; here descriptors belong to the relay's event loops.
//
// It refuses to know sessions, backends or errors' meaning: it says what the
// kernel said.
package datagram
