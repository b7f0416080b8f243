// Package wire owns the bytes of SCTP: common header, chunks, parameters, and the
// CRC32c over them (RFC 9260), parsed from and appended to slices of the caller's.
//
// It will never open a socket, keep an association, or allocate per packet. All
// integers are in host order in its types and in network order on the wire.
//
// There is no code here yet. It fills the seam below package sctp, and below the
// SCTP probe of package health.
package wire
