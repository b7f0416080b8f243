// Package offloadtest owns a kernel in plain memory for tests of package offload and
// of programs that use it: flows can be added, looked at and ended, and what packets
// would have done to them is the test's to say. No packet is ever carried. Faulty
// makes a kernel that refuses now and then.
//
// # Locks
//
// Kernel.mu, then Flow.mu. Both are held for a few instructions.
package offloadtest
