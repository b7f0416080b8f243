// Package perf owns the comparison of paths and modes under load: topologies of
// namespace hosts, workloads, repeated runs, and the report with its plots.
//
// It will never send a packet outside of hosts that it made itself, and never
// replace the benchmarks that stand beside the code they measure.
//
// There is no code here yet; "make perf" runs the benchmarks of all packages.
package perf
