// Package e2e holds the tests that see Baton as its users do: the built command
// on a host of its own, with clients and backends on other hosts, asserting what
// the peers get and what the command shows. The cases they are named for come
// from the field.
//
// The cases are run on every path that can carry them: see bothPaths. A flow is seen
// to have moved into the kernel by what the command says of it, by the balancer's
// sockets, which it no longer has, and by the wire, on which nobody but the peers
// ends it.
//
// It has no code but tests. The command is built once, with the race detector when
// the tests have it, unless BATON_COMMAND names one. Tests that wait run side by
// side; those that measure run before them.
package e2e
