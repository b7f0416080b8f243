// Package clock owns the time that programs in the kernel write down: CLOCK_MONOTONIC, and what the clock on the wall said then.
//
// It refuses to compare times of two boots: the clock begins anew with each.
package clock
