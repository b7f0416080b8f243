package affinity

import (
	"testing"
	"time"
)

func TestExpire(t *testing.T) {
	for _, c := range []struct {
		name    string
		lasts   []time.Duration
		at      time.Duration
		removed int
	}{
		{"empty", nil, time.Hour, 0},
		{"all young", []time.Duration{0, 1, 2}, time.Second, 0},
		{"some", []time.Duration{0, time.Minute, 2 * time.Minute}, 2 * time.Minute, 2},
		{"exactly at the timeout", []time.Duration{0}, time.Minute, 1},
		{"all", []time.Duration{0, 0, 0}, time.Hour, 3},
		{"more than a turn", make([]time.Duration, 3*expireTurn+5), time.Hour, 3*expireTurn + 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			tab := New(Options{})
			for i, d := range c.lasts {
				tab.Set(client(i), backend(i), at(d))
			}
			if got := tab.Expire(at(c.at), time.Minute); got != c.removed {
				t.Errorf("removed %d, want %d", got, c.removed)
			}
			if got := tab.Len(); got != len(c.lasts)-c.removed {
				t.Errorf("%d left, want %d", got, len(c.lasts)-c.removed)
			}
			if tab.Evicted() != 0 {
				t.Error("what expired was counted as evicted")
			}
			checkList(t, tab)
		})
	}
}

// A burst of clients does not hold its memory for ever.
func TestExpireGivesMemoryBack(t *testing.T) {
	const burst, stay = 20_000, 700
	tab := New(Options{})
	for i := range burst {
		tab.Set(client(i), backend(i%7), at(0))
	}
	for i := range stay {
		tab.Set(client(i*3), backend(i%5), at(time.Duration(i+1)*time.Second))
	}
	if got := tab.Expire(at(time.Minute+500*time.Millisecond), time.Minute); got != burst-stay {
		t.Errorf("removed %d, want %d", got, burst-stay)
	}
	if tab.entries.made != stay {
		t.Errorf("room for %d entries, want %d", tab.entries.made, stay)
	}
	checkList(t, tab)
	for i := range stay {
		checkGet(t, tab, client(i*3), at(time.Minute), time.Hour, backend(i%5))
	}
	// The order is kept: they go one by one.
	for i := range stay {
		if got := tab.Expire(at(time.Duration(i+1)*time.Second+time.Minute), time.Minute); got != 1 {
			t.Fatalf("step %d removed %d", i, got)
		}
	}
}

// Entries that were given back are used again.
func TestSlabReuse(t *testing.T) {
	tab := New(Options{})
	for round := range 20 {
		now := at(time.Duration(round) * time.Hour)
		for i := range 600 {
			tab.Set(client(round*1000+i), backend(i), now)
		}
		tab.Expire(now.Add(time.Minute), time.Minute)
	}
	if tab.entries.made > 600 || tab.Len() != 0 {
		t.Errorf("%d made, %d left", tab.entries.made, tab.Len())
	}
}
