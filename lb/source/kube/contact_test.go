package kube

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An outage is told once, however often it is met, and its end once.
func TestContactTellsOutagesOnce(t *testing.T) {
	var log syncBuffer
	c := newContact(slog.New(slog.NewTextHandler(&log, nil)), kindService, kindSlice)
	count := func(what string, want int) {
		t.Helper()
		if got := strings.Count(log.String(), what); got != want {
			t.Errorf("%q %d times, want %d:\n%s", what, got, want, &log)
		}
	}
	ctx := context.Background()
	for _, kind := range []string{kindService, kindSlice, kindService} {
		c.failed(ctx, kind, errors.New("connection refused"))
	}
	count("out of reach", 1)
	c.heard(kindService, true)
	count("in reach again", 0)
	if c.stale() == 0 {
		t.Error("one of two kinds is not watched, and nothing is stale")
	}
	c.heard(kindSlice, true)
	count("in reach again", 1)
	if s := c.stale(); s != 0 {
		t.Errorf("stale for %s", s)
	}

	c.ended(kindSlice) // as a watch does now and then
	if c.stale() == 0 {
		t.Error("a watch has ended, and nothing is stale")
	}
	c.heard(kindSlice, true)
	count("in reach again", 1)

	c.failed(ctx, kindSlice, apierrors.NewForbidden(schema.GroupResource{Resource: "endpointslices"}, "", errors.New("no")))
	count("refuses to tell", 1)
	over, cancel := context.WithCancel(ctx)
	cancel()
	c.heard(kindSlice, true)
	c.failed(over, kindSlice, context.Canceled)
	count("out of reach", 1)
	if c.stale() != 0 {
		t.Error("the end of the process is an outage")
	}
}
