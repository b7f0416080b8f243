package e2e

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// conn is a client's connection to an echo server.
type conn struct{ *net.TCPConn }

// works checks that the connection carries a line both ways.
func (c *conn) works(t *testing.T) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if err := testnet.Ask(c, "are you there"); err != nil {
		t.Errorf("a connection that must go on: %v", err)
	}
}

// ends closes the connection and waits for the clean end of the other side.
func (c *conn) ends(t *testing.T) {
	t.Helper()
	_ = c.CloseWrite()
	if n, err := readEnd(c, 10*time.Second); n != 0 || err != nil {
		t.Errorf("the end of a connection: %d bytes, %v", n, err)
	}
	c.Close()
}

// wasReset waits for a reset.
func (c *conn) wasReset(t *testing.T) {
	t.Helper()
	if _, err := readEnd(c, 20*time.Second); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v, want a reset", err)
	}
	c.Close()
}
