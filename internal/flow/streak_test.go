package flow

import (
	"net/netip"
	"sync"
	"testing"
)

var streakBackend = netip.MustParseAddrPort("10.1.0.1:80")

// dial opens a flow on the Load and says how its dial went: "" = well.
func dial(t testing.TB, r *Registry, l *Load, failure DialFailure) {
	t.Helper()
	rec := r.Open(Spec{Proto: TCP, Service: l.Service(), Client: streakBackend, Frontend: streakBackend})
	if !rec.Assign(Assignment{Backend: l.Backend(), Load: l}) {
		t.Fatal("assign refused")
	}
	if failure == "" {
		rec.Dialled()
	} else {
		rec.DialFailed(failure)
	}
	rec.Finish(ByBaton, ReasonClosed)
}

func TestStreak(t *testing.T) {
	r := NewRegistry(Options{})
	l := r.Acquire("web", streakBackend)
	for i, c := range []struct {
		failure DialFailure
		want    Streak
	}{
		{"", Streak{0, 0, false}},
		{DialRefused, Streak{1, 0, false}},
		{DialTimeout, Streak{2, 0, true}},
		{DialNoPorts, Streak{2, 0, true}},
		{DialNoResources, Streak{2, 0, true}},
		{"", Streak{0, 1, true}},
		{"", Streak{0, 1, true}},
		{DialUnreachable, Streak{1, 1, false}},
		{DialReset, Streak{2, 1, false}},
		{"", Streak{0, 2, false}},
	} {
		dial(t, r, l, c.failure)
		if got := l.Streak(); got != c.want {
			t.Fatalf("after dial %d (%q): %+v, want %+v", i, c.failure, got, c.want)
		}
	}
	if n := l.Failures(); n != 4 {
		t.Errorf("%d failures, want 4", n)
	}
}

// A UDP flow has a socket at once; only a datagram from the backend is an answer.
func TestStreakUDP(t *testing.T) {
	r := NewRegistry(Options{})
	l := r.Acquire("dns", streakBackend)
	open := func() *Record {
		rec := r.Open(Spec{Proto: UDP, Service: "dns", Client: streakBackend, Frontend: streakBackend})
		rec.Assign(Assignment{Backend: l.Backend(), Load: l})
		rec.Dialled()
		rec.FirstByte(ByClient)
		return rec
	}
	open().DialFailed(DialRefused)
	open().DialFailed(DialRefused)
	if got := l.Streak(); got != (Streak{2, 0, false}) {
		t.Errorf("after two ICMP errors: %+v", got)
	}
	open().FirstByte(ByBackend)
	if got := l.Streak(); got != (Streak{0, 1, false}) {
		t.Errorf("after an answer: %+v", got)
	}
}

func TestFailingIsToldOnceUntilRead(t *testing.T) {
	r := NewRegistry(Options{})
	l := r.Acquire("web", streakBackend)
	for range 3 {
		dial(t, r, l, DialRefused)
	}
	if got := <-r.Failing(); got != l || got.Service() != "web" || got.Backend() != streakBackend {
		t.Fatalf("told of %s at %s", got.Service(), got.Backend())
	}
	dial(t, r, l, DialRefused)
	if n := len(r.Failing()); n != 0 {
		t.Errorf("told %d times more before the streak was read", n)
	}
	if s := l.Streak(); s.Failures != 4 {
		t.Errorf("streak %+v", s)
	}
	dial(t, r, l, "")
	if n := len(r.Failing()); n != 0 {
		t.Error("told of a success")
	}
	dial(t, r, l, DialRefused)
	if n := len(r.Failing()); n != 1 {
		t.Errorf("told %d times of the next failure", n)
	}
}

// Nobody reads: the data path neither waits nor loses the count, and what did
// not fit is told at the next failure.
func TestFailingWithoutReader(t *testing.T) {
	r := NewRegistry(Options{})
	loads := make([]*Load, failingBuffer+1)
	for i := range loads {
		loads[i] = r.Acquire("web", netip.AddrPortFrom(streakBackend.Addr(), uint16(1+i)))
		dial(t, r, loads[i], DialRefused)
	}
	last := loads[failingBuffer]
	if s := last.Streak(); s.Failures != 1 {
		t.Errorf("streak %+v", s)
	}
	<-r.Failing()
	dial(t, r, last, DialRefused)
	for range failingBuffer - 1 {
		<-r.Failing()
	}
	if got := <-r.Failing(); got != last {
		t.Errorf("told of %s", got.Backend())
	}
}

func TestStreakUnderRace(t *testing.T) {
	r := NewRegistry(Options{})
	l := r.Acquire("web", streakBackend)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				dial(t, r, l, DialRefused)
				dial(t, r, l, "")
			}
		})
	}
	all.Wait()
	dial(t, r, l, "")
	if s := l.Streak(); s.Failures != 0 || s.Answered == 0 || s.Answered > 4001 {
		t.Errorf("streak %+v", s)
	}
}

func TestFailingAllocates(t *testing.T) {
	r := NewRegistry(Options{})
	l := r.Acquire("web", streakBackend)
	if n := testing.AllocsPerRun(1000, func() {
		r.failed(l, DialRefused)
		l.streak.answered()
		l.Streak()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkFailed(b *testing.B) {
	r := NewRegistry(Options{})
	l := r.Acquire("web", streakBackend)
	for b.Loop() {
		r.failed(l, DialRefused)
	}
}
