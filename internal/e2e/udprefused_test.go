package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// U5, when there is nobody else: a client whose every backend refuses is refused
// itself, though the frontend's port is open, and served again once one answers.
func TestUDPEveryBackendRefuses(t *testing.T) {
	bothFamilies(t, 2, func(t *testing.T, w world) {
		start(t, w.Balancer, w.udpService(nil))
		c := w.udp(t, w.vip)
		eventually(t, "the client is refused", func() error {
			_, err := c.Write([]byte("x"))
			if err == nil {
				_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				_, err = c.Read(make([]byte, 100))
			}
			if !errors.Is(err, unix.ECONNREFUSED) {
				return fmt.Errorf("the client sees %v", err)
			}
			return nil
		})
		serveUDP(t, w.Backends[1], w.backend(1), named("live"))
		eventually(t, "the backend answers", func() error {
			if _, err := c.Write([]byte("x")); err != nil {
				return err
			}
			_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			_, err := c.Read(make([]byte, 100))
			return err
		})
	})
}
