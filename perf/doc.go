// Command perf measures Baton beside what else can be put in its place, all on one
// machine, in network namespaces, as root.
//
//	go run ./perf                                   everything, about a quarter of an hour
//	go run ./perf -modes baton,nginx -workloads kept-32,udp-16 -rounds 3
//	go run ./perf -also before=./baton.old          two builds of Baton in one run
//	go run ./perf -profile -modes baton             CPU profiles, one for each workload
//	go run ./perf -from perf.out -update docs/performance.md
//
// How and why it measures as it does stands in docs/performance.md. The packages
// below do the work: topology (hosts), mode (ways from client to backend), workload
// (traffic), load (clients and servers), suite (rounds, checks), report (sums,
// tables), proc (what it costs). This one only wires them.
package main
