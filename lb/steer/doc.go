// Package steer owns mode steer: flows that are never terminated. The kernel's program (lb/steer/program says what it is told, and
// tells) chooses a backend for a flow's first packet out of what this package has laid ready, and carries the flow from there.
//
// # What is laid ready
//
// For each selection of a service's backends there is a pool. Where the choice does not depend on the client, choices are made before
// there is a flow (pool.go): the service's own scheduler makes them, with those that wait counted as flows, so that it chooses
// as it would have for each in its turn. What depends on the client is a table, the same that the scheduler has for Maglev;
// the table is also what a flow meets that finds no choice. No packet waits for the process, and none notices when it is away.
//
// # Records
//
// A connection has a record when its handshake is complete, a session from its first datagram: the program tells of both, and of
// their ends (flows.go). Whatever it has not told, a look at all flows finds (sweep.go), which also ends what is silent for too long.
// The id of a flow is made of what the kernel knows of it, so that it is the same in the next process.
//
// # What it refuses to do
//
// It touches no packet, opens no socket, and knows no BPF. It ends no connection because its backend is gone: that is done to
// records of every path alike, by who programs onBackendRemoved. Sessions of such a backend it ends, so that their clients
// find another one.
//
// # Locks
//
// Steer.mu, then flows.mu; path.mu is a leaf, taken by whoever reads a record. The program may be called with each of them held.
package steer
