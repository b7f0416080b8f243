package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

// UpgradeProtocol is the version of the conversation in which one process hands
// over to the next. Both must speak the same.
const UpgradeProtocol = 1

// leaveTimeout is how long answers on TCP are waited for.
const leaveTimeout = 500 * time.Millisecond

// upgradeScheme is what an HTTP connection becomes (RFC 9110, section 7.8).
const upgradeScheme = "baton-upgrade"

// UpgradeRequest asks an instance to hand everything over to the process that asks.
type UpgradeRequest struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`
	PID      int    `json:"pid"`
	StateDir string `json:"stateDir"`
}

// UpgradeFunc hands over, over a pipe that it need not close. What went wrong is
// the caller's affair: it keeps serving, and tells whoever is to know.
type UpgradeFunc func(*Pipe, UpgradeRequest)

// postUpgrade turns the connection into a Pipe and has everything handed over.
func (s *Server) postUpgrade(w http.ResponseWriter, r *http.Request) {
	var req UpgradeRequest
	if err := readJSON(r, &req); err != nil {
		fail(w, err)
		return
	}
	if err := s.mayUpgrade(&req); err != nil {
		fail(w, conflict(err))
		return
	}
	select {
	case s.upgrading <- struct{}{}:
		defer func() { <-s.upgrading }()
	default:
		fail(w, conflict(errors.New("another process is taking over already")))
		return
	}
	pipe, err := hijack(w)
	if err != nil {
		fail(w, err)
		return
	}
	defer pipe.Close()
	if pid, err := pipe.PeerPID(); err == nil {
		req.PID = pid
	}
	s.o.Upgrade(pipe, req)
}

// mayUpgrade says why another process cannot take over, if so.
func (s *Server) mayUpgrade(req *UpgradeRequest) error {
	switch {
	case s.o.Upgrade == nil:
		return errors.New("this instance cannot hand over")
	case req.Protocol != UpgradeProtocol:
		return fmt.Errorf("this instance (version %s) hands over by protocol %d, and version %s takes over by protocol %d: stop this one and start the other",
			s.o.Version, UpgradeProtocol, req.Version, req.Protocol)
	case req.StateDir != s.o.Instance.StateDir:
		return fmt.Errorf("this instance keeps its state in %s and not in %s: name the same --state-dir",
			s.o.Instance.StateDir, req.StateDir)
	}
	return nil
}

// hijack takes the connection of a request away from HTTP.
func hijack(w http.ResponseWriter) (*Pipe, error) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("take the connection over: %w", err)
	}
	bounded, ok := conn.(*boundedConn)
	if !ok {
		return nil, errors.Join(errors.New("not a connection of the socket"), conn.Close())
	}
	uc, ok := bounded.Conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("not a unix socket"), conn.Close())
	}
	conn.SetDeadline(time.Time{})
	if err := mayTakeOver(uc); err != nil {
		fmt.Fprintf(conn, "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n{\"error\":%q}\n", err)
		return nil, errors.Join(err, conn.Close())
	}
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", upgradeScheme)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return NewPipe(uc, conn.Close), nil
}

// mayTakeOver refuses whoever could not have started this instance: the group that
// may use the socket is not to get the instance's sockets.
func mayTakeOver(c syscall.Conn) error {
	cred, err := peerCred(c)
	if err != nil {
		return err
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("user %d may not take over from user %d", cred.Uid, os.Geteuid())
	}
	return nil
}

// Publish puts a socket that was made aside in its place.
func (s *Server) Publish() error {
	if s.socket == nil {
		return nil
	}
	return s.socket.publish()
}

// SetAside gives the socket a second path, at which it stays when another instance
// takes the first. Keep takes that back.
func (s *Server) SetAside() (path string, err error) {
	if s.socket == nil {
		return "", nil
	}
	return s.socket.setAside()
}

// Keep takes SetAside back.
func (s *Server) Keep() error {
	if s.socket == nil {
		return nil
	}
	return s.socket.keep()
}

// TCPListener is the listener for metrics and health, nil when there is none.
func (s *Server) TCPListener() net.Listener { return s.tcp }

// NodeListener is the listener for questions about the node, nil when there is none.
func (s *Server) NodeListener() net.Listener { return s.node }

// LeaveTCP stops to take connections on TCP: another process has the listeners too.
func (s *Server) LeaveTCP() {
	for _, l := range s.listeners {
		if _, unix := l.l.Listener.(*unixSocket); !unix {
			l.l.leave()
			l.srv.SetKeepAlivesEnabled(false)
		}
	}
}

// WaitTCP waits, for a moment, until those have their answers who came before
// LeaveTCP. They ask whether somebody serves here, and somebody does.
func (s *Server) WaitTCP() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	for _, l := range s.listeners {
		if l.l.left.Load() {
			l.l.empty(ctx)
		}
	}
}
