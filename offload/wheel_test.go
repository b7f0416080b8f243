package offload

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Alarms ring once, not before their time, and at most two ticks after it when the
// wheel is turned at every tick.
func TestWheel(t *testing.T) {
	now := time.Now()
	w := newWheel(now, func() {})
	type set struct {
		alarm
		at   time.Time
		rang int
	}
	var all []*set
	for range 2000 {
		s := &set{at: now.Add(rand.N(2 * wheelSlots * wheelTick))}
		s.ring = func(at time.Time) {
			s.rang++
			if late := at.Sub(s.at); late < 0 || late > 2*wheelTick {
				t.Errorf("rang %v late", late)
			}
		}
		w.set(&s.alarm, s.at)
		all = append(all, s)
	}
	for i, s := range all {
		switch i % 10 {
		case 0:
			w.clear(&s.alarm)
			w.clear(&s.alarm)
			s.rang++
		case 1:
			s.at = now.Add(time.Second)
			w.set(&s.alarm, s.at)
		}
	}
	left := -1
	for at := now; at.Before(now.Add(3 * wheelSlots * wheelTick)); at = at.Add(wheelTick) {
		left = w.advance(at)
	}
	for _, s := range all {
		if s.rang != 1 {
			t.Errorf("alarm of %v rang %d times", s.at.Sub(now), s.rang)
		}
	}
	if left != 0 {
		t.Errorf("%d are left", left)
	}
}

// After a long sleep everything rings that is due, and nothing else.
func TestWheelSleeps(t *testing.T) {
	now := time.Now()
	w := newWheel(now, func() {})
	rang := make(map[time.Duration]int)
	for _, d := range []time.Duration{time.Second, time.Minute, time.Hour, 30 * time.Hour} {
		w.set(&alarm{ring: func(time.Time) { rang[d]++ }}, now.Add(d))
	}
	if left := w.advance(now.Add(10 * time.Hour)); left != 1 || len(rang) != 3 {
		t.Errorf("%d left, rang %v", left, rang)
	}
	if left := w.advance(now.Add(30*time.Hour + 2*wheelTick)); left != 0 || rang[30*time.Hour] != 1 {
		t.Errorf("%d left, rang %v", left, rang)
	}
}

// Whoever turns the wheel is woken when it is no longer empty, and an alarm may be set
// anew by what it rings.
func TestWheelWakes(t *testing.T) {
	now := time.Now()
	woken := 0
	w := newWheel(now, func() { woken++ })
	var a, b alarm
	rang := 0
	a.ring = func(at time.Time) {
		if rang++; rang < 3 {
			w.set(&a, at.Add(wheelTick))
		}
	}
	b.ring = a.ring
	w.set(&a, now)
	w.set(&b, now.Add(time.Hour))
	w.set(&b, now.Add(2*time.Hour))
	w.clear(&b)
	if woken != 1 {
		t.Errorf("woken %d times", woken)
	}
	for i := range 20 {
		w.advance(now.Add(time.Duration(i) * wheelTick))
	}
	if rang != 3 {
		t.Errorf("rang %d times", rang)
	}
}

func BenchmarkWheel(b *testing.B) {
	now := time.Now()
	w := newWheel(now, func() {})
	var a alarm
	for b.Loop() {
		w.set(&a, now.Add(time.Second))
		w.clear(&a)
	}
}
