package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic is CLOCK_MONOTONIC, which BPF programs read.
func Monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // every kernel has it
	return time.Duration(ts.Nano())
}

// Wall is what the clock on the wall said at a time of CLOCK_MONOTONIC.
func Wall(at time.Duration) time.Time { return time.Now().Add(at - Monotonic()).Round(0) }
