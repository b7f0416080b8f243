package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/baton-lb/baton/internal/admin"
)

// upgradeTimeout bounds the wait for an answer to the request.
const upgradeTimeout = 10 * time.Second

// ErrCannotUpgrade is wrapped when the instance is too old to hand over.
var ErrCannotUpgrade = errors.New("the running instance cannot hand over: stop it and start this one")

// Upgrade asks the instance to hand over to the calling process. The pipe is the
// caller's to close; until both have agreed, closing it leaves everything as it was.
func (c *Client) Upgrade(ctx context.Context, r admin.UpgradeRequest) (_ *admin.Pipe, err error) {
	any, err := (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return nil, c.explain(err)
	}
	conn := any.(*net.UnixConn)
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://baton/v1/upgrade", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	conn.SetDeadline(time.Now().Add(upgradeTimeout))
	if err := req.Write(conn); err != nil {
		return nil, c.explain(err)
	}
	// The instance says no more than its answer before it is spoken to, so that
	// nothing that belongs to the pipe is in the reader.
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return nil, fmt.Errorf("ask the instance at %s: %w", c.socket, err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusSwitchingProtocols:
		conn.SetDeadline(time.Time{})
		return admin.NewPipe(conn, conn.Close), nil
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return nil, ErrCannotUpgrade
	}
	var answer struct {
		Error string `json:"error"`
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if json.Unmarshal(text, &answer) != nil || answer.Error == "" {
		answer.Error = resp.Status
	}
	return nil, errors.New(answer.Error)
}
