package relay

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

var (
	to4 = netip.MustParseAddr("192.0.2.1")
	to6 = netip.MustParseAddr("2001:db8::1")
)

func sourcesOf(t testing.TB, p SourceParams) *sources {
	t.Helper()
	s, err := newSources(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reserve is a list of reserved ports as a function.
func reserve(ports ...uint16) func(uint16) bool {
	return func(p uint16) bool { return slices.Contains(ports, p) }
}

// The kernel is asked first where the range is its own, once for each address of
// the family; everything else is a port of the range that is not reserved.
func TestSources(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	c := netip.MustParseAddr("fd00::1")
	kernel := SourceParams{KernelFirst: 1000, KernelLast: 1010, ReservedPorts: reserve()}
	own := kernel
	own.FirstPort, own.LastPort = 2000, 2004
	own.ReservedPorts = reserve(2000, 2002)
	with := func(p SourceParams, addrs ...netip.Addr) SourceParams { p.Addresses = addrs; return p }
	for name, tt := range map[string]struct {
		params SourceParams
		to     netip.Addr
		kernel int // tries for which the kernel chooses the port
		addrs  []netip.Addr
		ports  []uint16
	}{
		"all is the kernel's":      {kernel, to4, 1, []netip.Addr{{}}, []uint16{1000, 1005, 1010}},
		"addresses":                {with(kernel, a, b), to4, 2, []netip.Addr{a, b}, []uint16{1000, 1010}},
		"one of the other family":  {with(kernel, a, b, c), to6, 1, []netip.Addr{c}, []uint16{1000, 1010}},
		"none of the family":       {with(kernel, a), to6, 1, []netip.Addr{{}}, []uint16{1000, 1010}},
		"ports":                    {own, to4, 0, []netip.Addr{{}}, []uint16{2001, 2003, 2004}},
		"ports and addresses":      {with(own, a, b), to4, 0, []netip.Addr{a, b}, []uint16{2001, 2003, 2004}},
		"one port":                 {SourceParams{FirstPort: 7, LastPort: 7, ReservedPorts: reserve()}, to4, 0, []netip.Addr{{}}, []uint16{7}},
		"to the end of all ports":  {SourceParams{FirstPort: 65534, LastPort: 65535, ReservedPorts: reserve()}, to4, 0, []netip.Addr{{}}, []uint16{65534, 65535}},
		"as the kernel's, written": {SourceParams{KernelFirst: 5, KernelLast: 6, FirstPort: 5, LastPort: 6, ReservedPorts: reserve()}, to4, 1, []netip.Addr{{}}, []uint16{5, 6}},
	} {
		t.Run(name, func(t *testing.T) {
			s := sourcesOf(t, tt.params)
			if n := s.tries(tt.to); n != portTries+tt.kernel {
				t.Errorf("%d tries, want %d", n, portTries+tt.kernel)
			}
			addrs, ports := make(map[netip.Addr]int), make(map[uint16]int)
			for range 10 {
				for try := range s.tries(tt.to) {
					got := s.local(tt.to, try)
					addrs[got.Addr()]++
					if zero := got.Port() == 0; zero != (try < tt.kernel) {
						t.Fatalf("try %d is %s", try, got)
					}
					ports[got.Port()]++
				}
			}
			delete(ports, 0)
			for _, p := range tt.ports {
				if ports[p] == 0 {
					t.Errorf("port %d was never tried", p)
				}
			}
			for p := range ports {
				if p < tt.ports[0] || p > tt.ports[len(tt.ports)-1] || tt.params.ReservedPorts(p) {
					t.Errorf("port %d was tried", p)
				}
			}
			if len(addrs) != len(tt.addrs) {
				t.Errorf("addresses %v, want %v", addrs, tt.addrs)
			}
			for _, a := range tt.addrs {
				if addrs[a] == 0 {
					t.Errorf("address %s was never tried", a)
				}
			}
		})
	}
}

// A range without a port that may be used is an error, not one port after all.
func TestNoSourcePorts(t *testing.T) {
	for _, p := range []SourceParams{
		{FirstPort: 10, LastPort: 12, ReservedPorts: func(uint16) bool { return true }},
		{FirstPort: 12, LastPort: 10, ReservedPorts: reserve()},
	} {
		if _, err := newSources(p); err == nil {
			t.Errorf("no error for %d-%d", p.FirstPort, p.LastPort)
		}
	}
}

func TestParseReserved(t *testing.T) {
	for text, want := range map[string][]uint16{
		"":                    nil,
		"8080":                {8080},
		"8080,9000-9002":      {8080, 9000, 9001, 9002},
		" 1 , 3-4 ,\n":        {1, 3, 4},
		"65534-65535":         {65534, 65535},
		"x,5-y,70000,6":       {6},
		"7-6":                 nil,
		"10-10,12-13,12-13,0": {0, 10, 12, 13},
	} {
		reserved := parseReserved(text)
		var got []uint16
		for p := range 1 << 16 {
			if reserved(uint16(p)) {
				got = append(got, uint16(p))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestParseRange(t *testing.T) {
	for text, want := range map[string][2]uint16{
		"32768\t60999": {32768, 60999}, "1 65535": {1, 65535}, "5 5": {5, 5},
		"": {32768, 60999}, "0 10": {32768, 60999}, "9 3": {32768, 60999}, "1 70000": {32768, 60999}, "a b": {32768, 60999},
	} {
		if first, last := parseRange(text); first != want[0] || last != want[1] {
			t.Errorf("%q: got %d-%d, want %d-%d", text, first, last, want[0], want[1])
		}
	}
}

// The claim in the comment of sources.local: a connection in TIME_WAIT keeps the
// kernel from using its port towards the same peer for a second, and for longer
// where tcp_tw_reuse is 0; a dial that has bound that very port takes its place
// at once.
func TestPortsInTimeWait(t *testing.T) {
	// Ports below the usual range: no connection of another test is in TIME_WAIT there.
	addr, _ := backend(t, testnet.Echo)
	once, _ := backend(t, testnet.Echo)
	sysctl(t, "ip_local_port_range", "20100 20100")
	sysctl(t, "tcp_tw_reuse", "0")
	dialFrom := func(local netip.AddrPort) error {
		fd, err := dialTCP(DialParams{Local: local}, addr)
		if err != nil {
			return err
		}
		if err := waitConnected(fd); err != nil {
			unix.Close(fd)
			return err
		}
		_ = setLingerReset(fd, false)
		// Ours closes first, so that TIME_WAIT is on this side.
		_ = unix.Shutdown(fd, unix.SHUT_WR)
		pollIn(fd)
		return unix.Close(fd)
	}
	if err := dialFrom(netip.AddrPort{}); err != nil {
		t.Fatal(err)
	}
	testnet.Eventually(t, patience, "the connection is in TIME_WAIT", func() error {
		return dialStateIs(20100, "06")
	})
	if err := dialFrom(netip.AddrPort{}); err == nil || dialFailure(err) != "no-ports" {
		t.Errorf("the kernel's own search: %v, want EADDRNOTAVAIL", err)
	}
	for range 3 {
		if err := dialFrom(netip.AddrPortFrom(netip.Addr{}, 20100)); err != nil {
			t.Errorf("from a bound port: %v", err)
		}
		testnet.Eventually(t, patience, "the connection is in TIME_WAIT", func() error {
			return dialStateIs(20100, "06")
		})
	}

	// Through the relay: fifty short flows from two ports, which without this would
	// be two a minute.
	w := newWorld(t, Options{Source: SourceParams{FirstPort: 20101, LastPort: 20102}})
	w.serve(service("web", vip, once))
	sysctl(t, "ip_local_port_range", "42000 60999") // for the clients
	for range 50 {
		c := dial(t, vip)
		_, _ = io.WriteString(c, "x")
		_ = c.CloseWrite()
		if b, err := io.ReadAll(c); string(b) != "x" || err != nil {
			t.Fatalf("got %q, %v", b, err)
		}
		c.Close()
	}
}

// waitConnected waits until a dial is over.
func waitConnected(fd int) error {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if _, err := unix.Poll(fds, int(patience.Milliseconds())); err != nil {
		return err
	}
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = unix.Errno(errno)
	}
	return err
}

// pollIn waits until there is something to read, or the end.
func pollIn(fd int) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	_, _ = unix.Poll(fds, int(patience.Milliseconds()))
}

// dialStateIs looks for a connection from a port in /proc/net/tcp.
func dialStateIs(port int, state string) error {
	table := readProc("/proc/net/tcp")
	for _, line := range strings.Split(table, "\n") {
		f := strings.Fields(line)
		if len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == state {
			return nil
		}
	}
	return fmt.Errorf("it is not:\n%s", table)
}
