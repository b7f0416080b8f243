package client

import (
	"context"
	"os"
	"testing"
)

func TestReady(t *testing.T) {
	for _, tc := range []struct {
		status int
		body   string
		want   Readiness
	}{
		{200, "ok\n", Readiness{Ready: true, PID: os.Getpid()}},
		{503, "draining: the instance is stopping\n", Readiness{Reason: "draining: the instance is stopping", PID: os.Getpid()}},
	} {
		c := serve(t, answer(tc.status, tc.body))
		got, err := c.Ready(context.Background())
		if err != nil || got != tc.want {
			t.Errorf("got %+v, %v, want %+v", got, err, tc.want)
		}
	}
}
