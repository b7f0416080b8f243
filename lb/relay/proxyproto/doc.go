// Package proxyproto owns one noun: the PROXY protocol header, version 1 and 2, by which a proxy tells the next hop who
// the client is (HAProxy's proxy-protocol.txt, revision of 2020/03/05).
//
// It is a codec over byte slices. It does no I/O, keeps no state, starts no goroutine, needs no lock and imports nothing
// of ours. It refuses to guess: Parse accepts what the specification lets a sender emit and nothing else, and says
// ErrIncomplete only while the bytes seen so far can still become a header, so that a client that speaks something else
// is turned away at its first wrong byte and not after a timeout.
//
// Why not a library: the ones at hand wrap a net.Conn and a bufio.Reader. The relay reads the header out of a buffer it
// has peeked at (MSG_PEEK) on a raw descriptor and then takes exactly that many bytes, because what follows is spliced
// and must stay in the socket; and over UDP every single datagram carries a header. Both want a parser that works on a
// slice, consumes nothing and allocates nothing, not even to refuse. github.com/pires/go-proxyproto serves as the oracle
// in the tests.
//
// What is accepted beyond the letter: in a version 1 TCP6 line the dotted form ::ffff:192.0.2.1, because inet_ntop, and
// with it HAProxy, prints IPv4-mapped addresses so. What is accepted less than the letter allows: a version 2 header of
// more than MaxV2 bytes (ErrTooLong).
package proxyproto
