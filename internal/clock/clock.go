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

// Reading is both clocks at one time.
type Reading struct {
	mono time.Duration
	wall time.Time
}

// Read reads both.
func Read() Reading { return Reading{Monotonic(), time.Now()} }

// Wall is what the clock on the wall said at a time of CLOCK_MONOTONIC, going by a reading that was not long ago.
func (r Reading) Wall(at time.Duration) time.Time { return r.wall.Add(at - r.mono).Round(0) }

// Wall is what the clock on the wall said at a time of CLOCK_MONOTONIC.
func Wall(at time.Duration) time.Time { return Read().Wall(at) }
