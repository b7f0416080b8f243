package health

import (
	"log/slog"
	"time"

	"github.com/baton-lb/baton/lb/store"
)

// newsPerSecond is how much is logged: a switch that fails is the news of
// thousands of backends at once.
const newsPerSecond = 20

// report is one line for the log.
type report struct {
	level   slog.Level
	message string
	attrs   []any
}

// news collects what there is to log, with Checker.mu held.
type news struct {
	waiting []report
	second  time.Duration // that said counts for
	said    int
	hidden  int
}

func (n *news) add(now time.Duration, level slog.Level, message string, attrs ...any) {
	if second := now.Truncate(time.Second); second != n.second {
		n.second, n.said = second, 0
		if n.hidden > 0 {
			n.waiting = append(n.waiting, report{slog.LevelWarn, "news of backends not shown", []any{"count", n.hidden}})
			n.hidden = 0
		}
	}
	if n.said++; n.said > newsPerSecond {
		n.hidden++
		return
	}
	n.waiting = append(n.waiting, report{level, message, attrs})
}

func (n *news) take() []report {
	w := n.waiting
	n.waiting = nil
	return w
}

// unable says that a backend cannot be asked, which leaves its health as it was.
func (c *Checker) unable(j job, out outcome) {
	if p := &j.backend.probing; !p.unable {
		p.unable = true
		c.news.add(c.now(), slog.LevelWarn, "backend cannot be probed", "svc", j.backend.service.published.Name,
			"backend", j.backend.address.String(), "err", out.reason(j.check))
	}
}

// tell says what has become of a backend, and what that means for its service.
func (c *Checker) tell(b *backend, was store.Health, allWere bool) {
	now, name := c.now(), b.service.published.Name
	say := func(level slog.Level, message string, more ...any) {
		c.news.add(now, level, message, append([]any{"svc", name, "backend", b.address.String()}, more...)...)
	}
	switch {
	case b.told.Unhealthy == was.Unhealthy:
	case b.probing.down:
		say(slog.LevelWarn, "backend is unhealthy", "reason", b.told.Reason)
	case b.told.Unhealthy:
		say(slog.LevelWarn, "backend is ejected", "reason", b.told.Reason)
	case was.Reason == b.ejected.reason:
		say(slog.LevelInfo, "backend is tried again")
	default:
		say(slog.LevelInfo, "backend is healthy again")
	}
	switch all := b.service.allIll(); {
	case all && !allWere:
		c.news.add(now, slog.LevelWarn, "all backends are unhealthy: using them all", "svc", name)
	case allWere && !all:
		c.news.add(now, slog.LevelInfo, "not all backends are unhealthy any more", "svc", name)
	}
}
