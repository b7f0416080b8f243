// Package workload owns what the performance suite makes flow between client and
// backends: bulk data, requests on kept and on fresh connections, datagrams both
// ways and one way, connections that do nothing. Each is a [Workload]; a new one
// is a type in a file of its own and a line in [All].
//
// A workload starts its servers and clients, lets them run themselves in, measures
// for the time of its [Cell], and ends them; it returns figures, what they cost, and
// what it claims to have moved, so that others can see whether the mode under
// measurement has carried it. Any failed call is an error instead.
//
// It refuses to know which mode it runs on.
//
// No locks. Kernel: none beyond that of [github.com/baton-lb/baton/perf/load].
package workload
