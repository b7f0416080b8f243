package clock

import (
	"testing"
	"time"
)

// Both clocks go on together, and what was a while ago was so on the wall.
func TestWall(t *testing.T) {
	before := time.Now()
	at := Monotonic()
	after := time.Now()
	if Monotonic() < at || at <= 0 {
		t.Errorf("it was %v, and is less", at)
	}
	const slack = 5 * time.Second // between two looks at clocks that somebody may set
	for _, ago := range []time.Duration{0, time.Hour} {
		if wall := Wall(at - ago).Add(ago); wall.Before(before.Add(-slack)) || wall.After(after.Add(slack)) {
			t.Errorf("%v ago: %v is not between %v and %v", ago, wall, before, after)
		}
	}
}
