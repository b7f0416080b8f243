// Package health owns what is known about backends: by asking them (active
// probes over TCP, HTTP and UDP, with their rise and fall counts), and by how
// connecting to them went (passive ejection with a back-off). It also owns the
// ramp of a backend that comes back.
//
//	c := health.New(health.Options{Store: s, Failing: registry.Failing(), Log: log})
//	s.Register(store.Backends, "health", c)
//	defer c.Close()
//
// It follows the store's snapshots as a Programmer and writes its verdicts back
// through SetHealth. It never chooses a backend and never ends a flow: what
// becomes of a verdict, also when all of a service's backends are unhealthy, is
// package sched's to say.
//
// # Verdicts
//
// A backend is unhealthy while its probe says that it is down or while it is
// ejected. A new one counts as healthy until its probe has failed fall times. A
// reload keeps what is known as long as the backend is listed; it is forgotten
// when the backend goes, or its state is down.
//
// # Goroutines
//
// One goroutine keeps the time of all backends in a heap. A probe has a
// goroutine while it runs, at most Options.Concurrency of them; what is due
// beyond that waits in line, which is counted and is no failure. Without probes
// nothing ticks. Close ends all of them and waits.
//
// # Locks
//
// Checker.mu, then the store's, which SetHealth takes. Nothing is probed or
// logged with a lock held.
//
// # Kernel
//
// Plain sockets. IP_RECVERR, so that a UDP probe hears of every ICMP error.
//
// # Health check node ports
//
// NodePorts answers load balancers in front of the nodes that ask whether a
// service has a backend on this one. It is a thing apart: it probes nobody and
// reads the snapshot only.
package health
