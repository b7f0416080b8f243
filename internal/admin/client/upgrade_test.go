package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/baton-lb/baton/internal/admin"
)

// answering is a socket at which every request gets this answer.
func answering(t *testing.T, status int, body string) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close(); <-done })
	return New(path)
}

func TestUpgradeIsRefused(t *testing.T) {
	for _, tc := range []struct {
		status int
		body   string
		want   string
	}{
		{http.StatusNotFound, "404 page not found", ErrCannotUpgrade.Error()},
		{http.StatusConflict, `{"error":"not now"}`, "not now"},
		{http.StatusInternalServerError, "oops", "500 Internal Server Error"},
	} {
		p, err := answering(t, tc.status, tc.body).Upgrade(t.Context(), admin.UpgradeRequest{})
		if p != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%d: %v, want %q", tc.status, err, tc.want)
		}
	}
	if _, err := New(filepath.Join(t.TempDir(), "none")).Upgrade(context.Background(), admin.UpgradeRequest{}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("nobody: %v", err)
	}
}
