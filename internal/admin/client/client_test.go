package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/flow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers on a unix socket.
func serve(t *testing.T, h http.Handler) *Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "client")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	var wg sync.WaitGroup
	wg.Go(func() { srv.Serve(l) })
	c := New(path)
	t.Cleanup(func() {
		c.Close()
		srv.Close()
		wg.Wait()
	})
	return c
}

func answer(status int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
}

func TestNobodyThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.sock")
	c := New(path)
	defer c.Close()
	_, err := c.Instance(t.Context())
	if !errors.Is(err, ErrNotRunning) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"no baton is running here: " + path, "no such file", "--socket"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %q", want, err)
		}
	}
	// A plain file is no instance either.
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Instance(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a plain file: %v", err)
	}
}

func TestErrorsOfTheInstance(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":"unknown service \"x\""}`: `unknown service "x"`,
		"<html>":                            "POST /v1/drain: 404 Not Found",
		`{}`:                                "POST /v1/drain: 404 Not Found",
	} {
		c := serve(t, answer(http.StatusNotFound, body))
		if _, err := c.Drain(t.Context(), "x"); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", body, err, want)
		}
	}
	c := serve(t, answer(http.StatusOK, "not JSON"))
	if _, err := c.Reset(t.Context(), "x"); err == nil || !strings.HasPrefix(err.Error(), "read the answer: ") {
		t.Errorf("got %v", err)
	}
}

func TestCallsSendWhatTheyMean(t *testing.T) {
	var got string
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.String() + " " + string(body)
		io.WriteString(w, `{"flows":[]}`)
	}))
	spec := admin.FilterSpec{Service: []string{"web"}, Client: []string{"fd00::/8"}}
	for want, call := range map[string]func() error{
		"GET /v1/flows?client=fd00%3A%3A%2F8&ended=1&service=web ": func() error {
			return c.Flows(t.Context(), spec, true, func(*flow.View) error { return nil })
		},
		`POST /v1/drain {"target":"web"}`:   func() error { _, err := c.Drain(t.Context(), "web"); return err },
		`POST /v1/undrain {"target":"web"}`: func() error { _, err := c.Undrain(t.Context(), "web"); return err },
		`POST /v1/reset {"flow":"abcd"}`:    func() error { _, err := c.Reset(t.Context(), "abcd"); return err },
		"GET /v1/trace?service=web ": func() error {
			l, err := c.Trace(t.Context(), admin.FilterSpec{Service: []string{"web"}})
			if err == nil {
				err = l.Close()
			}
			return err
		},
		"GET /v1/services?watch=1s ": func() error {
			l, err := c.Watch(t.Context(), "/v1/services", map[string][]string{}, time.Second)
			if err == nil {
				err = l.Close()
			}
			return err
		},
	} {
		if err := call(); err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
}

func TestList(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want int
		fine bool
	}{
		{`{"services":[]}`, 0, true},
		{`{"services":[{"name":"a"},{"name":"b"}]}`, 2, true},
		{`{"services":[{"name":"a"}`, 1, false},
		{`{"services":{}}`, 0, false},
		{`[]`, 0, false},
		{``, 0, false},
		{`{"services":[7]}`, 0, false},
	} {
		n := 0
		err := List(strings.NewReader(tc.in), func(*admin.Service) error { n++; return nil })
		if n != tc.want || (err == nil) != tc.fine {
			t.Errorf("%s: %d items, %v", tc.in, n, err)
		}
	}
	stop := errors.New("enough")
	err := List(strings.NewReader(`{"services":[{},{}]}`), func(*admin.Service) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	c := serve(t, answer(http.StatusOK, "a\n"+long+"\nlast\ncut"))
	get := func() *Lines {
		body, err := c.Get(t.Context(), "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { body.Close() })
		return newLines(body)
	}
	l := get()
	for _, want := range []string{"a", long, "last"} {
		if got, err := l.Next(); err != nil || string(got) != want {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	}
	if _, err := l.Next(); err == nil || errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "read the stream") {
		t.Errorf("a line that is cut: %v", err)
	}
	if _, err := l.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
	l = get()
	var out bytes.Buffer
	for range 3 {
		if err := l.WriteNext(&out); err != nil {
			t.Fatal(err)
		}
	}
	if out.String() != "a\n"+long+"\nlast\n" {
		t.Errorf("wrote %d bytes", out.Len())
	}
	if err := l.WriteNext(&out); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("a line that is cut: %v", err)
	}
}

func TestInterruptedIsNoFailureOfTheInstance(t *testing.T) {
	release := make(chan struct{})
	c := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(release)
		<-r.Context().Done()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-release
		cancel()
	}()
	if _, err := c.Instance(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
