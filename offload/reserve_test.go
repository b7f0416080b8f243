package offload

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/baton-lb/baton/internal/testnet"
)

// reserving is a host on which ports are reserved.
type reserving struct {
	t    *testing.T
	host *testnet.Host
	dir  string
}

func newReserving(t *testing.T, user string) *reserving {
	t.Helper()
	r := &reserving{t, testnet.New(t).Host("reserving"), t.TempDir()}
	r.host.Sysctl("net.ipv4.ip_local_reserved_ports", user)
	return r
}

func (r *reserving) open(p PortParams, inUse string) *reservation {
	r.t.Helper()
	set, err := parsePortSet(inUse)
	if err != nil {
		r.t.Fatal(err)
	}
	var held *reservation
	r.host.Do(func() { _, held, err = openPorts(p, r.dir, set) })
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { held.close() })
	return held
}

// want checks what is reserved, and what the file says of it ("" = there is none).
func (r *reserving) want(sysctl, file string) {
	r.t.Helper()
	var b []byte
	r.host.Do(func() { b, _ = os.ReadFile(reservedPath) })
	if got := strings.TrimSpace(string(b)); got != sysctl {
		r.t.Errorf("reserved: %q, want %q", got, sysctl)
	}
	b, _ = os.ReadFile(filepath.Join(r.dir, reservedFile))
	if got := strings.TrimSpace(string(b)); got != file {
		r.t.Errorf("remembered: %q, want %q", got, file)
	}
}

var someRange = PortParams{First: 40000, Last: 49999}

// What the user has reserved stays, what we add is remembered and goes with us.
func TestReserve(t *testing.T) {
	r := newReserving(t, "8080,46000-46009")
	held := r.open(someRange, "")
	r.want("8080,45000-49999", "45000-45999,46010-49999")
	r.host.Sysctl("net.ipv4.ip_local_reserved_ports", "8080,9090,45000-49999") // the user, meanwhile
	if err := held.release(portSet{}); err != nil {
		t.Fatal(err)
	}
	r.want("8080,9090,46000-46009", "")
	if err := held.release(portSet{}); err != nil {
		t.Fatal(err)
	}
}

// After a crash the next process finds what is ours, also when it takes other ports
// now; those of flows that live on stay.
func TestReserveAfterCrash(t *testing.T) {
	r := newReserving(t, "")
	r.open(someRange, "")
	r.open(someRange, "45001")
	r.want("45000-49999", "45000-49999")
	held := r.open(PortParams{First: 40000, Last: 40009}, "1,45001,45007")
	r.want("40005-40009,45001,45007", "40005-40009,45001,45007")
	if err := held.release(portSet{}); err != nil {
		t.Fatal(err)
	}
	r.want("", "")
	r.open(someRange, "")
	r.open(PortParams{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}, "")
	r.want("", "") // addresses of ours need no reservation
}

// A crash between the file and the sysctl, or a restart of the machine, harms nobody.
func TestReservedFileAlone(t *testing.T) {
	r := newReserving(t, "7")
	if err := os.WriteFile(filepath.Join(r.dir, reservedFile), []byte("40005-40009\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.open(PortParams{First: 40000, Last: 40009}, "")
	r.want("7,40005-40009", "40005-40009")
}

func TestReleasePorts(t *testing.T) {
	r := newReserving(t, "7")
	release := func() (did string, err error) {
		r.host.Do(func() { did, err = ReleasePorts(r.dir) })
		return did, err
	}
	if did, err := release(); did != "" || err != nil {
		t.Errorf("released %q, %v; there is nothing", did, err)
	}
	r.open(someRange, "")
	if did, err := release(); did != "45000-49999" || err != nil {
		t.Errorf("released %q, %v", did, err)
	}
	r.want("7", "")
	if err := os.WriteFile(filepath.Join(r.dir, reservedFile), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if did, err := release(); err == nil {
		t.Errorf("released %q of nonsense", did)
	}
}
