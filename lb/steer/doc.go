// Package steer owns mode steer: flows that are never terminated. The kernel's program (lb/steer/program says what it is told, and
// tells) chooses a backend for a flow's first packet out of what this package has laid ready, and carries the flow from there.
//
// What it refuses to do: it touches no packet but those that the program sends up, opens no socket, and knows no BPF.
package steer
