package kube

import (
	"context"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// contact knows since when the API server is out of reach. As long as every kind
// is watched it is not: what is known is what there is.
type contact struct {
	log *slog.Logger

	mu    sync.Mutex           // guards what follows
	since map[string]time.Time // by kind that is not watched: when it was last
	told  time.Time            // since when the log says that it is out of reach; zero = it does not
}

func newContact(log *slog.Logger, kinds ...string) *contact {
	c := &contact{log: log, since: make(map[string]time.Time)}
	for _, kind := range kinds {
		c.since[kind] = time.Now()
	}
	return c
}

// heard notes that a kind is watched, or that it was read just now.
func (c *contact) heard(kind string, watched bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !watched {
		c.since[kind] = time.Now()
		return
	}
	delete(c.since, kind)
	if len(c.since) == 0 && !c.told.IsZero() {
		c.log.Info("the API server is in reach again", "after", time.Since(c.told).Round(time.Millisecond))
		c.told = time.Time{}
	}
}

// ended notes that the watch of a kind has ended, as each does now and then.
func (c *contact) ended(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endedLocked(kind)
}

func (c *contact) endedLocked(kind string) {
	if _, lost := c.since[kind]; !lost {
		c.since[kind] = time.Now()
	}
}

// failed notes an attempt to read or watch a kind that came to nothing.
func (c *contact) failed(ctx context.Context, kind string, err error) {
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endedLocked(kind)
	if c.told.IsZero() {
		c.told = time.Now()
		what := "is out of reach"
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			what = "refuses to tell"
		}
		c.log.Warn("the API server "+what+": what is known is served", "kind", kind, "err", err)
		return
	}
	c.log.Debug("the API server is out of reach", "kind", kind, "err", err)
}

// stale is how long the oldest of what is known may have been wrong.
func (c *contact) stale() time.Duration {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var longest time.Duration
	for _, since := range c.since {
		longest = max(longest, time.Since(since))
	}
	return longest
}
