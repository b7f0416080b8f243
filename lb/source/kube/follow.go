package kube

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
)

// Between two attempts to reach the API server. Many nodes lose it together, and
// must not come back together.
const (
	retryMin = 250 * time.Millisecond
	retryMax = 8 * time.Second
)

// streamLists has the reflectors of this program ask for all that there is as the beginning
// of a watch: it comes object by object, where a list is in memory whole, as its bytes and
// as its objects. A server that does not do that says so, and is asked for a list. Who has
// told the client library by its own variable has decided already.
var streamLists = sync.OnceFunc(func() {
	if _, decided := os.LookupEnv("KUBE_FEATURE_" + string(features.WatchListClient)); !decided {
		features.ReplaceFeatureGates(streaming{features.FeatureGates()})
	}
})

// streaming is the client library's settings but for one.
type streaming struct{ features.Gates }

// Enabled implements features.Gates.
func (s streaming) Enabled(f features.Feature) bool {
	return f == features.WatchListClient || s.Gates.Enabled(f)
}

// followed is one kind of objects as the API server has it.
type followed struct {
	kind   string
	sample runtime.Object
	list   func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch  func(context.Context, metav1.ListOptions) (watch.Interface, error)
	into   *intake

	streams bool // the watch has begun with all that there is; of the reflector's goroutine
}

// run follows the kind until ctx ends.
func (f *followed) run(ctx context.Context, c *contact) {
	var delay pause
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := f.list(ctx, o)
			if err != nil {
				return nil, err
			}
			delay.reset()
			c.heard(f.kind, false)
			return f.into.page(list)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return f.open(ctx, o, c, &delay)
		},
	}
	f.into.replaced = func() {
		if f.streams {
			c.heard(f.kind, true)
		}
	}
	r := cache.NewReflectorWithOptions(lw, f.sample, f.into, cache.ReflectorOptions{Name: f.kind})
	for ctx.Err() == nil {
		// nil is an end that calls for reading everything anew.
		if err := r.ListAndWatchWithContext(ctx); err != nil {
			c.failed(ctx, f.kind, err)
		}
		delay.wait(ctx)
	}
}

// openAttempts is how often it is tried to watch on before everything is read anew.
const openAttempts = 100

// open begins to watch. An API server that does not answer is waited for here: the
// reflector would have everything sent again when it comes back, by a server that has
// enough to do then, or wait up to a minute. One that has forgotten where we were says
// so.
func (f *followed) open(ctx context.Context, o metav1.ListOptions, c *contact, delay *pause) (watch.Interface, error) {
	for attempt := 1; ; attempt++ {
		w, err := f.watch(ctx, o)
		if err == nil {
			delay.reset()
			if f.streams = o.SendInitialEvents != nil; !f.streams {
				c.heard(f.kind, true)
			}
			return &watched{Interface: w, ended: sync.OnceFunc(func() { c.ended(f.kind) })}, nil
		}
		if o.SendInitialEvents != nil && apierrors.IsInvalid(err) {
			return nil, err // it does not do that
		}
		c.failed(ctx, f.kind, err)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || attempt == openAttempts || ctx.Err() != nil {
			return nil, err
		}
		delay.wait(ctx)
	}
}

// watched is a watch that says when it ends: whoever reads it stops it then.
type watched struct {
	watch.Interface
	ended func()
}

// Stop implements watch.Interface.
func (w *watched) Stop() {
	w.ended()
	w.Interface.Stop()
}

// pause is a time to wait that grows, with some chance in it.
type pause struct{ last time.Duration }

func (p *pause) reset() { p.last = 0 }

func (p *pause) wait(ctx context.Context) {
	p.last = min(max(2*p.last, retryMin), retryMax)
	t := time.NewTimer(p.last/2 + rand.N(p.last/2))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
