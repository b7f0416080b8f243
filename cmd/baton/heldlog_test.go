package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestHeldLog(t *testing.T) {
	var out bytes.Buffer
	base := slog.New(slog.NewTextHandler(&out, nil))
	log, release := holdLog(t.Context(), base)
	log.With("svc", "web").Warn("first", "n", 1)
	log.WithGroup("g").Info("second", "n", 2)
	if out.Len() > 0 {
		t.Errorf("written too early: %s", &out)
	}
	release()
	log.Info("third")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{"msg=first svc=web n=1", "msg=second g.n=2", "msg=third"}
	if len(lines) != len(want) {
		t.Fatalf("got %q", lines)
	}
	for i, w := range want {
		if !strings.HasSuffix(lines[i], w) {
			t.Errorf("line %d is %q, want %q", i, lines[i], w)
		}
	}
}

func TestHeldLogAtDebug(t *testing.T) {
	var out bytes.Buffer
	base := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	log, _ := holdLog(t.Context(), base)
	log.Info("at once")
	if !strings.Contains(out.String(), "at once") {
		t.Error("nothing was written")
	}
}
