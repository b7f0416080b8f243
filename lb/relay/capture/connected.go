package capture

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
)

// Connected says which of the addresses are the local end of a TCP connection in the calling thread's namespace that still
// has something to say: an open one, or one that was closed and whose last bytes the peer has not acknowledged. Without a
// route of ours to its address such a connection would fall silent.
func Connected(addrs []netip.Addr) (map[netip.Addr]bool, error) {
	wanted := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		wanted[a.Unmap()] = false
	}
	for _, file := range []string{"tcp", "tcp6"} {
		f, err := os.Open("/proc/thread-self/net/" + file)
		if os.IsNotExist(err) { // a kernel without IPv6
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read connections: %w", err)
		}
		err = markConnected(f, wanted)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("read connections: %w", err)
		}
	}
	connected := make(map[netip.Addr]bool)
	for a, is := range wanted {
		if is {
			connected[a] = true
		}
	}
	return connected, nil
}

// markConnected reads a table of /proc/net and sets those of the addresses to true that have a connection.
func markConnected(r io.Reader, wanted map[netip.Addr]bool) error {
	lines := bufio.NewScanner(r)
	lines.Scan() // the heading
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || !speaks(fields[3], fields[9]) {
			continue
		}
		local, ok := parseProcAddr(fields[1])
		if !ok {
			continue
		}
		if _, ok := wanted[local.Addr().Unmap()]; ok {
			wanted[local.Addr().Unmap()] = true
		}
	}
	return lines.Err()
}

// speaks reports whether a socket in this state may have to send or receive more. One that nobody has open (inode 0) and
// that waits for the peer's FIN only has had everything acknowledged.
func speaks(state, inode string) bool {
	switch state {
	case "01", "04", "08", "09", "0B": // ESTABLISHED, FIN_WAIT1, CLOSE_WAIT, LAST_ACK, CLOSING
		return true
	case "05": // FIN_WAIT2
		return inode != "0"
	}
	return false
}
