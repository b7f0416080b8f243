// Package affinity owns stickiness: which backend a client was given last, for
// as long as the timeout since its last new flow says.
//
// It does no I/O and has no clock: times are handed in. It does not know
// whether a backend may still take new flows; who asks decides that, and says
// what the client was given instead with Set. Entries are by address and stay
// when their backend goes away, so that a client whose service loses all its
// backends for a moment finds its own again.
//
// A Table is safe for use by several goroutines at once. It has one mutex, in
// which nothing else is locked or called, and which is held for about as long as
// the cache misses of one entry take. Shards would cost the exact order of
// eviction and gain nothing on two cores (BenchmarkParallel, and the same with
// shards). Every operation is O(1), but for Expire, which is O(entries expired)
// and works in short turns.
package affinity
