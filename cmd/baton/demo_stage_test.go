package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStageUndoesTheLastFirst(t *testing.T) {
	tests := []struct {
		name string
		play func(*stage)
		want string // of the error; "" = none
	}{
		{"the story ends", func(*stage) {}, ""},
		{"a step fails", func(s *stage) { s.Fatalf("no %s", "luck") }, "no luck"},
		{"a claim is wrong", func(s *stage) { s.claim(false, "the sky is %s", "green") }, "not as told: the sky is green"},
		{"something goes wrong", func(s *stage) { s.must("open the door", errors.New("locked")) }, "open the door: locked"},
		{"a skip is no success", func(s *stage) { s.Skipf("not here") }, "not here"},
		{"only the first failure counts", func(s *stage) { s.Cleanup(func() { s.fail(errors.New("second")) }); s.Fatalf("first") }, "first"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var undone []string
			err := perform(t.Context(), func(s *stage) {
				for _, what := range []string{"hosts", "processes"} {
					s.Cleanup(func() { undone = append(undone, what) })
				}
				tt.play(s)
			})
			if got := text(err); got != tt.want {
				t.Errorf("error %q, want %q", got, tt.want)
			}
			if want := []string{"processes", "hosts"}; !slices.Equal(undone, want) {
				t.Errorf("undone: %v, want %v", undone, want)
			}
		})
	}
}

func TestStageIsInterrupted(t *testing.T) {
	tests := []struct {
		name string
		wait func(*stage)
	}{
		{"in a pause", func(s *stage) { s.pause(time.Hour) }},
		{"while it waits for something", func(s *stage) { s.await("the end of time", func() error { return errors.New("not yet") }) }},
		{"while something breaks by it", func(s *stage) { <-s.ctx.Done(); s.must("go on", errors.New("killed")) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			undone := false
			err := perform(ctx, func(s *stage) {
				s.Cleanup(func() { undone = true })
				time.AfterFunc(time.Millisecond, func() { cancel(errors.New("somebody wants it")) })
				tt.wait(s)
			})
			if got, want := text(err), "stopped: somebody wants it"; got != want {
				t.Errorf("error %q, want %q", got, want)
			}
			if !undone {
				t.Error("nothing was undone")
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestScreenKeepsToItsWidth(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"short", "a", "a\n"},
		{"just fits", strings.Repeat("ä", screenWidth), strings.Repeat("ä", screenWidth) + "\n"},
		{"too long", strings.Repeat("a", screenWidth+1), strings.Repeat("a", screenWidth-1) + "…\n"},
		{"only blanks are too much", "a" + strings.Repeat(" ", screenWidth), "a\n"},
		{"several lines, the last without an end", "a\n\nb", "a\n\nb\n"},
		{"nothing", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			newScreen(&b).output(tt.in)
			if b.String() != tt.want {
				t.Errorf("%q, want %q", b.String(), tt.want)
			}
		})
	}
}

func TestScreenColours(t *testing.T) {
	var b strings.Builder
	s := newScreen(&b)
	s.colour = true
	s.say("plain")
	s.proof("%d of %d", 2, 2)
	if want := "plain\n\x1b[32m=> 2 of 2\x1b[0m\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
