package testnet

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"
)

// Echo returns what it is sent, and the half-close too.
func Echo(c net.Conn) {
	_, _ = io.Copy(c, c)
	closeWrite(c)
}

// Named says its name on a line of its own as soon as a client is there, and
// then is an Echo.
func Named(name string) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := io.WriteString(c, name+"\n"); err == nil {
			Echo(c)
		}
	}
}

// Sink reads to the end and says nothing.
func Sink(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// Hold reads nothing and says nothing until the server is closed: a backend that
// never answers and never gives up.
func Hold(c net.Conn) {
	rc, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Read(func(uintptr) bool { return false })
}

// ReadName reads the line with which a [Named] server begins.
func ReadName(c net.Conn) (string, error) {
	name, err := readLine(c)
	if err != nil {
		return "", fmt.Errorf("read the server's name: %w", err)
	}
	return name, nil
}

// AskName connects to a Named server, at most five seconds long, and returns its
// name. Errors of the dial and of the read are wrapped.
func (h *Host) AskName(addr netip.AddrPort) (string, error) {
	c, err := h.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	return ReadName(c)
}

// Ask writes a line to an echo server and checks that it comes back.
func Ask(c net.Conn, line string) error {
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		return fmt.Errorf("write line: %w", err)
	}
	got, err := readLine(c)
	if err != nil {
		return fmt.Errorf("read line: %w", err)
	}
	if got != line {
		return fmt.Errorf("echo of %q was %q", line, got)
	}
	return nil
}

// readLine reads a byte at a time: what follows the line is the caller's.
func readLine(r io.Reader) (string, error) {
	var line strings.Builder
	var b [1]byte
	for line.Len() < 4096 {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return line.String(), nil
		}
		line.WriteByte(b[0])
	}
	return "", fmt.Errorf("no line in %d bytes", line.Len())
}

func closeWrite(c net.Conn) {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
	}
}
