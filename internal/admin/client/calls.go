package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/flow"
)

// Instance asks who answers.
func (c *Client) Instance(ctx context.Context) (i admin.Instance, err error) {
	body, err := c.Get(ctx, "/v1/instance", nil)
	if err != nil {
		return i, err
	}
	err = decode(body, &i)
	return i, err
}

// Services calls each with every service that the filter selects.
func (c *Client) Services(ctx context.Context, f admin.FilterSpec, each func(*admin.Service) error) error {
	body, err := c.Get(ctx, "/v1/services", f.Values())
	if err != nil {
		return err
	}
	defer body.Close()
	return List(body, each)
}

// Backends calls each with every backend that the filter selects.
func (c *Client) Backends(ctx context.Context, f admin.FilterSpec, each func(*admin.Backend) error) error {
	body, err := c.Get(ctx, "/v1/backends", f.Values())
	if err != nil {
		return err
	}
	defer body.Close()
	return List(body, each)
}

// Flows calls each with every live flow that the filter selects, or with every
// ended one that is remembered, the oldest first.
func (c *Client) Flows(ctx context.Context, f admin.FilterSpec, ended bool, each func(*flow.View) error) error {
	q := f.Values()
	if ended {
		q.Set("ended", "1")
	}
	body, err := c.Get(ctx, "/v1/flows", q)
	if err != nil {
		return err
	}
	defer body.Close()
	return List(body, each)
}

// Drain keeps new flows from a target: SERVICE, SERVICE/IP:PORT or IP:PORT.
func (c *Client) Drain(ctx context.Context, target string) (r admin.TargetResult, err error) {
	err = c.post(ctx, "/v1/drain", admin.TargetRequest{Target: target}, &r)
	return r, err
}

// Undrain takes Drain back.
func (c *Client) Undrain(ctx context.Context, target string) (r admin.TargetResult, err error) {
	err = c.post(ctx, "/v1/undrain", admin.TargetRequest{Target: target}, &r)
	return r, err
}

// Reset ends a flow, named by its id or the start of it.
func (c *Client) Reset(ctx context.Context, id string) (r admin.ResetResult, err error) {
	err = c.post(ctx, "/v1/reset", admin.ResetRequest{Flow: id}, &r)
	return r, err
}

// Handoff hands a flow over to the kernel, named by its id or the start of it.
func (c *Client) Handoff(ctx context.Context, id string) (r admin.HandoffResult, err error) {
	err = c.post(ctx, "/v1/handoff", admin.HandoffRequest{Flow: id}, &r)
	return r, err
}

// Watch asks for a list again and again: a line each time that it has changed.
// It sets a parameter of q.
func (c *Client) Watch(ctx context.Context, path string, q url.Values, every time.Duration) (*Lines, error) {
	q.Set("watch", every.String())
	body, err := c.Get(ctx, path, q)
	if err != nil {
		return nil, err
	}
	return newLines(body), nil
}

// Trace follows the events of the flows that the filter selects, from now on.
func (c *Client) Trace(ctx context.Context, f admin.FilterSpec) (*Lines, error) {
	body, err := c.Get(ctx, "/v1/trace", f.Values())
	if err != nil {
		return nil, err
	}
	return newLines(body), nil
}

// Lines is a stream of JSON documents, one a line.
type Lines struct {
	body io.ReadCloser
	r    *bufio.Reader
}

func newLines(body io.ReadCloser) *Lines { return &Lines{body, bufio.NewReaderSize(body, 64<<10)} }

// WriteNext copies the next line to w, however long it is. It returns io.EOF
// when the instance has ended the stream.
func (l *Lines) WriteNext(w io.Writer) error {
	for wrote := false; ; wrote = true {
		part, err := l.r.ReadSlice('\n')
		if len(part) > 0 {
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && !wrote && len(part) == 0:
			return io.EOF
		default:
			return fmt.Errorf("read the stream: %w", err)
		}
	}
}

// Next returns the next line, without its line feed. It returns io.EOF when the
// instance has ended the stream.
func (l *Lines) Next() ([]byte, error) {
	line, err := l.r.ReadBytes('\n')
	switch {
	case err == nil:
		return line[:len(line)-1], nil
	case errors.Is(err, io.EOF) && len(line) == 0:
		return nil, io.EOF
	}
	return nil, fmt.Errorf("read the stream: %w", err)
}

// Close ends the stream.
func (l *Lines) Close() error { return l.body.Close() }

// List decodes {"NAME":[…]} item by item.
func List[T any](r io.Reader, each func(*T) error) error {
	d := json.NewDecoder(r)
	for _, want := range []json.Token{json.Delim('{'), nil, json.Delim('[')} {
		got, err := d.Token()
		if err != nil {
			return fmt.Errorf("read the list: %w", err)
		}
		if want != nil && got != want {
			return fmt.Errorf("read the list: %v where %v was expected", got, want)
		}
	}
	for d.More() {
		var item T
		if err := d.Decode(&item); err != nil {
			return fmt.Errorf("read the list: %w", err)
		}
		if err := each(&item); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("read the list: %w", err)
	}
	return nil
}
