package capture

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// socket is one that waits for whoever comes: a TCP listener or an unconnected UDP socket.
type socket struct {
	proto string // tcp | udp
	local netip.AddrPort
	inode uint64
}

// The tables are those of /proc and not of sock_diag, whose UDP half is a kernel option that minimal kernels lack.
var socketTables = []struct{ proto, file, state string }{
	{"tcp", "tcp", "0A"}, // TCP_LISTEN
	{"tcp", "tcp6", "0A"},
	{"udp", "udp", "07"}, // TCP_CLOSE: not connected
	{"udp", "udp6", "07"},
}

// waitingSockets reads the sockets that wait in the calling thread's namespace.
func waitingSockets() (sockets []socket, err error) {
	for _, t := range socketTables {
		f, err := os.Open("/proc/thread-self/net/" + t.file)
		if os.IsNotExist(err) { // a kernel without IPv6
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read sockets: %w", err)
		}
		found, err := parseSockets(f, t.proto, t.state)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("read sockets: %w", err)
		}
		sockets = append(sockets, found...)
	}
	return sockets, nil
}

// parseSockets reads a table of /proc/net and keeps the sockets in the given state. Lines it cannot read it passes over.
// TCP tables list the listeners first, so reading ends at the first other socket.
func parseSockets(r io.Reader, proto, state string) (sockets []socket, err error) {
	lines := bufio.NewScanner(r)
	lines.Scan() // the heading
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 {
			continue
		}
		if fields[3] != state {
			if proto == "tcp" {
				break
			}
			continue
		}
		local, ok := parseProcAddr(fields[1])
		inode, err := strconv.ParseUint(fields[9], 10, 64)
		if ok && err == nil {
			sockets = append(sockets, socket{proto: proto, local: local, inode: inode})
		}
	}
	return sockets, lines.Err()
}

// parseProcAddr reads "0100007F:0050": words in the machine's byte order, and the port.
func parseProcAddr(s string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(s, ":")
	if !ok {
		return netip.AddrPort{}, false
	}
	b, err := hex.DecodeString(host)
	if err != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.BigEndian.PutUint32(b[i:], binary.NativeEndian.Uint32(b[i:]))
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a, uint16(n)), true
}

// process is a process that has a socket open.
type process struct {
	pid  int
	name string
}

// String gives "nginx (pid 123)".
func (p process) String() string { return fmt.Sprintf("%s (pid %d)", p.name, p.pid) }

// processesBySocket finds who has which socket open, as far as we may look. Of several processes it keeps the first.
func processesBySocket() map[uint64]process {
	owners := make(map[uint64]process)
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return owners
	}
	for _, entry := range procs {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		dir := "/proc/" + entry.Name()
		fds, err := os.ReadDir(dir + "/fd")
		if err != nil {
			continue
		}
		name := ""
		for _, fd := range fds {
			link, err := os.Readlink(dir + "/fd/" + fd.Name())
			if err != nil || !strings.HasPrefix(link, "socket:[") {
				continue
			}
			inode, err := strconv.ParseUint(strings.Trim(link, "socket:[]"), 10, 64)
			if err != nil {
				continue
			}
			if name == "" {
				name = processName(dir)
			}
			if _, ok := owners[inode]; !ok {
				owners[inode] = process{pid, name}
			}
		}
	}
	return owners
}

func processName(dir string) string {
	b, err := os.ReadFile(dir + "/comm")
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(b))
}

// holders remembers the waiting sockets and their processes for a moment: a second instance finds thousands of ports in
// use and asks about each.
var holders struct {
	mu        sync.Mutex
	read      time.Time
	namespace uint64
	sockets   []socket
	owners    map[uint64]process
}

// holderOf says which process listens on addr or on a wildcard that includes it: "nginx (pid 123) on 0.0.0.0:80"; "" if
// that cannot be seen. What is remembered is read anew when it is old or knows nothing of the port.
func holderOf(proto string, addr netip.AddrPort) string {
	holders.mu.Lock()
	defer holders.mu.Unlock()
	if holders.namespace == currentInode() && time.Since(holders.read) < time.Second {
		if s, ok := holderLocked(proto, addr); ok {
			return s
		}
	}
	sockets, err := waitingSockets()
	if err != nil {
		return ""
	}
	holders.sockets, holders.owners = sockets, processesBySocket()
	holders.read, holders.namespace = time.Now(), currentInode()
	s, _ := holderLocked(proto, addr)
	return s
}

// holderLocked looks a port up in what is remembered; ok is false if no socket is there.
func holderLocked(proto string, addr netip.AddrPort) (text string, ok bool) {
	for _, s := range holders.sockets {
		if s.proto != proto || !s.covers(addr) {
			continue
		}
		if p, ok := holders.owners[s.inode]; ok {
			return fmt.Sprintf("%s on %s", p, s.local), true
		}
		ok = true
	}
	return "", ok
}

// covers says whether the socket keeps others from addr.
func (s socket) covers(addr netip.AddrPort) bool {
	local, wanted := s.local.Addr(), addr.Addr()
	if s.local.Port() != addr.Port() || local.Is4() && wanted.Is6() {
		return false
	}
	return local == wanted.WithZone("") || local.IsUnspecified() || wanted.IsUnspecified() && local.Is4() == wanted.Is4()
}
