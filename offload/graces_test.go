package offload

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Everybody waits for a period that began after they asked, and many share one.
func TestGraces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began atomic.Int64
		g := graces{grace: func() error {
			began.Add(1)
			time.Sleep(20 * time.Millisecond)
			return nil
		}}
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				before := began.Load()
				at := time.Now()
				if err := g.wait(); err != nil {
					t.Error(err)
				}
				if began.Load() <= before || time.Since(at) < 20*time.Millisecond {
					t.Errorf("period %d was over after %v, asked during %d", began.Load(), time.Since(at), before)
				}
			})
		}
		all.Wait()
		if n := began.Load(); n > 7 {
			t.Errorf("%d periods", n)
		}
	})
}

func TestGraceFails(t *testing.T) {
	fault := errors.New("fault")
	g := graces{grace: func() error { return fault }}
	if err := g.wait(); !errors.Is(err, fault) {
		t.Error(err)
	}
	g.grace = func() error { return nil }
	if err := g.wait(); err != nil {
		t.Error(err)
	}
}
