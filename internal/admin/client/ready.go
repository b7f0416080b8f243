package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"golang.org/x/sys/unix"
)

// Readiness is whether new clients should be sent to an instance.
type Readiness struct {
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // why not
	PID    int    `json:"pid,omitempty"`    // the process that answers; 0 = one of a PID namespace that is not seen from here
}

// Ready asks for it.
func (c *Client) Ready(ctx context.Context) (r Readiness, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return r, c.explain(err)
	}
	defer conn.Close()
	if r.PID, err = listenerPID(conn.(*net.UnixConn)); err != nil {
		return r, fmt.Errorf("ask who answers at %s: %w", c.socket, err)
	}
	// The answer is to come from the process that was just named.
	one := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://baton/readyz", nil)
	if err != nil {
		return r, fmt.Errorf("make a request: %w", err)
	}
	resp, err := one.Do(req)
	if err != nil {
		return r, c.explain(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return r, fmt.Errorf("read the answer: %w", err)
	}
	if r.Ready = resp.StatusCode == http.StatusOK; !r.Ready {
		r.Reason = strings.TrimSpace(string(text))
	}
	return r, nil
}

// listenerPID is the process that listened last at the other end (SO_PEERCRED).
func listenerPID(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, credErr); err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}
