package poll

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Timers fire in the order of their times, not of their arming, and not before.
func TestTimersInOrder(t *testing.T) {
	l := start(t)
	const n = 60
	fired := make(chan int, n)
	delay := func(i int) time.Duration { return time.Duration(i) * 2 * time.Millisecond }
	var armed time.Time
	on(t, l, func() {
		armed = l.Now()
		for _, i := range rand.Perm(n) {
			l.Arm(&Timer{Fire: func() {
				if late := l.Now().Sub(armed); late < delay(i) {
					t.Errorf("timer %d fired after %v, want at least %v", i, late, delay(i))
				}
				fired <- i
			}}, delay(i))
		}
	})
	var order []int
	for range n {
		order = append(order, receive(t, fired))
	}
	if !slices.IsSorted(order) {
		t.Errorf("they fired as %v", order)
	}
}

// A timer that arms itself while it fires goes on, once in each round.
func TestTimerArmsItself(t *testing.T) {
	l := start(t)
	fired := make(chan time.Time, 100)
	var timer Timer
	timer.Fire = func() {
		fired <- l.Now()
		if len(fired) < 5 {
			l.Arm(&timer, 0)
		}
	}
	on(t, l, func() { l.Arm(&timer, 0) })
	rounds := make(map[time.Time]bool)
	for range 5 {
		rounds[receive(t, fired)] = true
	}
	if len(rounds) != 5 {
		t.Errorf("it fired 5 times in %d rounds", len(rounds))
	}
}

// Arming again moves a timer, to sooner or later; disarming stops it, also from
// within another timer that is due at the same time, and twice does no harm.
func TestRearmAndDisarm(t *testing.T) {
	l := start(t)
	fired := make(chan string, 10)
	timer := func(name string) *Timer { return &Timer{Fire: func() { fired <- name }} }
	sooner, later, never := timer("sooner"), timer("later"), timer("never")
	var other *Timer
	first := &Timer{Fire: func() { fired <- "one of two"; l.Disarm(other) }}
	second := &Timer{Fire: func() { fired <- "one of two"; l.Disarm(first) }}
	other = second
	on(t, l, func() {
		l.Arm(sooner, time.Hour)
		l.Arm(later, 0)
		l.Arm(never, time.Millisecond)
		l.Arm(sooner, time.Millisecond)
		l.Arm(later, 20*time.Millisecond)
		l.Disarm(never)
		l.Disarm(never)
		l.Arm(first, 5*time.Millisecond)
		l.Arm(second, 5*time.Millisecond)
	})
	var order []string
	for range 3 {
		order = append(order, receive(t, fired))
	}
	want(t, "fired", order, []string{"sooner", "one of two", "later"})
	on(t, l, func() {
		if len(l.timers) != 0 {
			t.Errorf("%d timers are left", len(l.timers))
		}
		l.Arm(never, 0) // a disarmed timer may be armed again
	})
	if name := receive(t, fired); name != "never" {
		t.Errorf("%s fired", name)
	}
}

// Times beyond what the kernel or an integer can hold mean late, not at once.
func TestFarTimers(t *testing.T) {
	l := start(t)
	on(t, l, func() {
		for _, d := range []time.Duration{40 * 24 * time.Hour, math.MaxInt64} {
			var timer Timer
			timer.Fire = func() { t.Errorf("the timer of %v fired", d) }
			l.Arm(&timer, d)
			if ms := l.wait(); ms != math.MaxInt32 {
				t.Errorf("for %v the loop waits %d ms, want %d", d, ms, math.MaxInt32)
			}
			l.Disarm(&timer)
		}
		if ms := l.wait(); ms != -1 {
			t.Errorf("without timers the loop waits %d ms, want for ever", ms)
		}
	})
}

// Timers go by the monotonic clock: setting the host's clock fires none of them.
func TestNanoIsMonotonic(t *testing.T) {
	l := start(t)
	on(t, l, func() {
		if d := time.Duration(l.Nano()); d < 0 || d > time.Minute {
			t.Errorf("a new loop is %v old", d)
		}
		if got := l.started.Add(time.Duration(l.Nano())); !got.Equal(l.Now()) {
			t.Errorf("Nano says %v, Now %v", got, l.Now())
		}
	})
}

func BenchmarkArm(b *testing.B) {
	l, err := New()
	if err != nil {
		b.Fatal(err)
	}
	timers := make([]Timer, 100_000)
	for i := range timers {
		l.Arm(&timers[i], time.Hour+time.Duration(rand.Int64N(int64(time.Hour)))) // none is due before the end
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		l.Arm(&timers[i%len(timers)], time.Hour)
		i++
	}
	l.Close()
	l.Run()
}
