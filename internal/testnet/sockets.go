package testnet

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// TCPSocket is a line of /proc/net/tcp or tcp6.
type TCPSocket struct {
	Local, Remote netip.AddrPort
	State         int // as include/net/tcp_states.h numbers them
}

// Two of the states that a TCPSocket can be in.
const (
	TCPTimeWait = 6
	TCPListen   = 10
)

// TCPSockets lists the host's TCP sockets of both families, without those that
// listen and those that are over and wait.
func (h *Host) TCPSockets() []TCPSocket {
	h.t.Helper()
	var all []TCPSocket
	var err error
	h.Do(func() {
		for _, name := range []string{"tcp", "tcp6"} {
			if err == nil {
				all, err = appendSockets(all, "/proc/thread-self/net/"+name)
			}
		}
	})
	if err != nil {
		h.t.Fatalf("host %s: list sockets: %v", h.name, err)
	}
	return all
}

func appendSockets(all []TCPSocket, path string) ([]TCPSocket, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Scan() // the heading
	for lines.Scan() {
		s, err := parseSocket(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		if s.State != TCPListen && s.State != TCPTimeWait {
			all = append(all, s)
		}
	}
	return all, lines.Err()
}

// parseSocket reads "  0: 0101A8C0:1F90 00000000:0000 0A …" (proc_pid_net(5)).
func parseSocket(line string) (s TCPSocket, err error) {
	f := strings.Fields(line)
	if len(f) < 4 {
		return s, fmt.Errorf("%q is not a socket", line)
	}
	if s.Local, err = parseHexAddr(f[1]); err != nil {
		return s, err
	}
	if s.Remote, err = parseHexAddr(f[2]); err != nil {
		return s, err
	}
	state, err := strconv.ParseUint(f[3], 16, 8)
	s.State = int(state)
	return s, err
}

// parseHexAddr reads an address of 32-bit words in the machine's order, and a port.
func parseHexAddr(text string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	if err != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address", text)
	}
	for i := 0; i < len(raw); i += 4 {
		word := binary.BigEndian.Uint32(raw[i:])
		binary.NativeEndian.PutUint32(raw[i:], word)
	}
	addr, ok := netip.AddrFromSlice(raw)
	n, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address", text)
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), nil
}
