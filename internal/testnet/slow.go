package testnet

import (
	"os"
	"time"
)

// How much less is asked of an interpreted machine (make test-vm), and how much
// longer it may take.
const (
	fewer  = 10
	longer = 5
)

// Slow says whether this machine is one that is interpreted, ten times slower than
// others and more: BATON_VM is set in the environment.
func Slow() bool { return os.Getenv("BATON_VM") != "" }

// Scaled is how many of n rounds, bytes or flows a test should try on this machine:
// a tenth of them, but one at least, where it is [Slow]. It is for volumes that make
// a test thorough, not for those that make it right.
func Scaled(n int) int {
	if Slow() {
		return max(1, n/fewer)
	}
	return n
}

// Patience is how long to wait on this machine for what may take d on others. It is
// for time limits, not for time that must pass. [Eventually] knows it.
func Patience(d time.Duration) time.Duration {
	if Slow() {
		return longer * d
	}
	return d
}
