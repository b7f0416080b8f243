// Package admin owns what an operator and his tools see of a running instance,
// and the few things they may ask of it: HTTP with JSON on a unix socket (list
// services, backends and flows, follow events, drain, hand off, reset), metrics and
// health on TCP when that is asked for, the access log, and the lock that makes
// an instance the only one in its network namespace.
//
// It shows internal/flow's registry and lb/store's snapshot and keeps no state
// of its own. It refuses to control anything over TCP, to hold up a data path
// (a reader that is too slow loses events, and is told how many), and to build
// a long answer in memory: lists are written as they are read.
//
// Whoever may write to the socket (mode 0660) may do everything that the API
// offers; there is no other authentication.
//
// Locks: none is held while another package is called.
//
// Kernel: unix sockets, of which the instance lock is an abstract one
// (unix(7)).
package admin
