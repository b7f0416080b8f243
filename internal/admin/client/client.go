package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/admin"
)

// ErrNotRunning is wrapped when nobody serves the socket.
var ErrNotRunning = errors.New("no baton is running here")

// Client asks the instance behind one socket.
type Client struct {
	socket string
	http   *http.Client
}

// New makes a client. Nothing is connected until it is used.
func New(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// Close gives its connections back.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get asks for a path and hands over the body of the answer, which the caller
// closes.
func (c *Client) Get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	return c.do(ctx, http.MethodGet, path, query, nil)
}

// post sends a request and reads the answer into out.
func (c *Client) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("write the request: %w", err)
	}
	answer, err := c.do(ctx, http.MethodPost, path, nil, bytes.NewReader(body))
	if err != nil {
		return err
	}
	return decode(answer, out)
}

func (c *Client) do(ctx context.Context, method, path string, query url.Values, body io.Reader) (io.ReadCloser, error) {
	u := url.URL{Scheme: "http", Host: "baton", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	if resp.StatusCode/100 == 2 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	var answer struct {
		Error string `json:"error"`
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if json.Unmarshal(text, &answer) != nil || answer.Error == "" {
		answer.Error = fmt.Sprintf("%s %s: %s", method, path, resp.Status)
	}
	return nil, errors.New(answer.Error)
}

// explain says what a failure to reach the socket means.
func (c *Client) explain(err error) error {
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		return fmt.Errorf("ask the instance at %s: %w", c.socket, err)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: permission denied: use root, or an account that may write to the socket", c.socket)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w: %s: %w; %s", ErrNotRunning, c.socket, op.Err, c.whatToDo())
	}
	return fmt.Errorf("connect to %s: %w", c.socket, op.Err)
}

func (c *Client) whatToDo() string {
	if h, ok, err := admin.FindHolder(); err == nil && ok && h.Socket != "" && h.Socket != c.socket {
		return fmt.Sprintf("the one in this network namespace (pid %d) has --socket %s", h.PID, h.Socket)
	}
	return "start one with `baton run --config FILE`, or name its socket with --socket"
}

func decode(body io.ReadCloser, out any) error {
	defer body.Close()
	if err := json.NewDecoder(body).Decode(out); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}
