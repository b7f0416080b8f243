// Package program owns the words in which mode steer talks with the kernel's program that carries its flows: what the program
// is told of services, and what it tells of flows. lb/steer speaks them on one side, offload/bpf on the other; neither knows
// the other.
//
// It refuses to do anything: there is no I/O, and no goroutine. It says what must be true of whoever does.
//
// # What the program is told
//
//	Frontend ── a client's packet without a flow: whose, and which pool for whom ──> Pool, Service
//	Pool     ── refuse, drop, to the stack, or choose: a ticket, else the table ──> Backend
//	Service  ── what is common to its flows: affinity, times, limits
//
// Everything is named by small numbers that lb/steer gives out and that live as long as what they name, also over a restart:
// Program.Adopted tells them to the next process.
package program
