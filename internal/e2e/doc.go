// Package e2e holds the tests that see Baton as its users do: the built command
// on a host of its own, with clients and backends on other hosts, asserting what
// the peers get and what the command shows. The cases they are named for come
// from the field.
//
// It has no code but tests. The command is built once, with the race detector
// when the tests have it.
package e2e
