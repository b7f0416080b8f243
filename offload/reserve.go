package offload

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/sysctl"
)

// After a handoff the kernel knows no socket at the flow's source port any more. So
// that it gives the port to nobody else, the port stands in
// net.ipv4.ip_local_reserved_ports, which counts for both families, while we run or
// flows of ours live. What the user has in there stays; what we added is remembered
// in a file, for whoever has to take it out after a crash.

var (
	reservedPath = sysctl.Path("net/ipv4/ip_local_reserved_ports")
	rangePath    = sysctl.Path("net/ipv4/ip_local_port_range")
)

const reservedFile = "reserved-ports" // in the state directory: a list as in the sysctl

// reservation is the ports that we have reserved in one network namespace.
type reservation struct {
	sysctl *os.File // kept open: it belongs to the namespace of whoever opened it
	file   string   // "" = none
	ours   portSet
}

// openReservation opens the calling thread's namespace and reads what an earlier
// process has left. user is what others have reserved.
func openReservation(stateDir string) (_ *reservation, user portSet, err error) {
	r := &reservation{}
	if r.sysctl, err = openSysctl(reservedPath); err != nil {
		return nil, user, fmt.Errorf("open %s: %w", sysctlName(reservedPath), err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.sysctl.Close())
		}
	}()
	if stateDir != "" {
		r.file = filepath.Join(stateDir, reservedFile)
		if r.ours, err = readReserved(r.file); err != nil {
			return nil, user, err
		}
	}
	if user, err = r.read(); err != nil {
		return nil, user, err
	}
	user.remove(r.ours)
	return r, user, nil
}

// openSysctl opens for writing where that is allowed.
func openSysctl(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		return os.Open(path)
	}
	return f, err
}

// reserve adds ports. Those that a user has reserved are not ours, and stay his.
func (r *reservation) reserve(want portSet) error {
	now, err := r.read()
	if err != nil {
		return err
	}
	add := want
	add.remove(now)
	if add.empty() {
		return r.remember()
	}
	r.ours.union(add)
	// The file comes first: a crash in between must leave nothing that nobody knows of.
	if err := r.remember(); err != nil {
		return err
	}
	now.union(add)
	return r.write(now)
}

// release takes everything out again that is ours, but for keep.
func (r *reservation) release(keep portSet) error {
	gone := r.ours
	gone.remove(keep)
	if gone.empty() {
		return nil
	}
	now, err := r.read()
	if err != nil {
		return err
	}
	now.remove(gone)
	if err := r.write(now); err != nil {
		return err
	}
	r.ours.remove(gone)
	return r.remember()
}

func (r *reservation) close() error { return r.sysctl.Close() }

func (r *reservation) read() (portSet, error) { return readPorts(r.sysctl) }

func readPorts(f *os.File) (s portSet, err error) {
	// The list can be long; the kernel cuts it at the size of the read.
	buf := make([]byte, 512<<10)
	n, err := f.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return s, fmt.Errorf("read %s: %w", sysctlName(reservedPath), err)
	}
	return parsePortSet(string(buf[:n]))
}

func (r *reservation) write(s portSet) error {
	// An empty list is written as an empty line.
	if _, err := r.sysctl.WriteAt([]byte(s.String()+"\n"), 0); err != nil {
		return fmt.Errorf("write %s: %w", sysctlName(reservedPath), err)
	}
	return nil
}

// remember writes the file, or removes it when nothing is reserved.
func (r *reservation) remember() error {
	if r.file == "" {
		return nil
	}
	if r.ours.empty() {
		if err := os.Remove(r.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget reserved ports: %w", err)
		}
		return nil
	}
	next := r.file + ".new"
	if err := os.WriteFile(next, []byte(r.ours.String()+"\n"), 0o600); err != nil {
		return fmt.Errorf("remember reserved ports: %w", err)
	}
	if err := os.Rename(next, r.file); err != nil {
		return fmt.Errorf("remember reserved ports: %w", err)
	}
	return nil
}

func readReserved(file string) (portSet, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return portSet{}, nil
	}
	if err != nil {
		return portSet{}, fmt.Errorf("read reserved ports: %w", err)
	}
	s, err := parsePortSet(string(text))
	if err != nil {
		return portSet{}, fmt.Errorf("read %s: %w", file, err)
	}
	return s, nil
}

// ReleasePorts takes out of net.ipv4.ip_local_reserved_ports of the calling thread's
// network namespace what a process that is gone has put there, and returns the list
// of it; "" when there was nothing. No offloaded flow may live.
func ReleasePorts(stateDir string) (string, error) {
	if _, err := os.Stat(filepath.Join(stateDir, reservedFile)); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	r, _, err := openReservation(stateDir)
	if err != nil {
		return "", fmt.Errorf("release reserved ports: %w", err)
	}
	ours := r.ours.String()
	if err := errors.Join(r.release(portSet{}), r.close()); err != nil {
		return "", fmt.Errorf("release reserved ports: %w", err)
	}
	return ours, nil
}

// kernelRange is the ports that the kernel chooses from in the calling thread's
// network namespace.
func kernelRange() (s portSet, err error) {
	text, err := os.ReadFile(rangePath)
	if err != nil {
		return s, fmt.Errorf("read %s: %w", sysctlName(rangePath), err)
	}
	f := strings.Fields(string(text))
	if len(f) != 2 {
		return s, fmt.Errorf("read %s: %q are not two ports", sysctlName(rangePath), text)
	}
	return parsePortSet(f[0] + "-" + f[1])
}

func sysctlName(path string) string {
	return strings.ReplaceAll(strings.TrimPrefix(path, sysctl.Path("")+"/"), "/", ".")
}

// openPorts makes the ports that flows are lent, reserved where they have to be.
// inUse are the ports of flows that live on from an earlier process.
func openPorts(p PortParams, stateDir string, inUse portSet) (*ports, *reservation, error) {
	r, user, err := openReservation(stateDir)
	if err != nil {
		return nil, nil, err
	}
	first, last := p.Lent()
	var lent portSet
	lent.addRange(first, last)
	s, err := newPorts(p, user)
	if err == nil {
		err = r.hold(p, lent, inUse)
	}
	if err != nil {
		return nil, nil, errors.Join(err, r.close())
	}
	return s, r, nil
}

// hold reserves what has to be, and lets go of what is no longer needed: the ports of
// another range, unless flows of an earlier process are still there.
func (r *reservation) hold(p PortParams, lent, inUse portSet) error {
	keep := inUse
	if len(p.Addresses) == 0 {
		keep.union(lent)
		if err := r.reserve(lent); err != nil {
			chosen, rangeErr := kernelRange()
			if rangeErr != nil || lent.overlap(chosen) {
				return fmt.Errorf("reserve source ports (or set source.addresses, or source.ports outside of %s): %w",
					sysctlName(rangePath), errors.Join(err, rangeErr))
			}
		}
	}
	return r.release(keep)
}
