package capture

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// What can stand in the way. The errors returned say in words what to do about it.
var (
	// ErrInUse says that another socket has the port; it is wrapped with who that is, where that can be seen.
	ErrInUse = errors.New("address is in use")

	// ErrAbsent says that the address is not on this host, so that no socket can have it.
	ErrAbsent = errors.New("address is not on this host")

	// ErrPermission says that the process lacks a capability.
	ErrPermission = errors.New("no permission")

	// ErrNoFamily says that the kernel or this namespace does without IPv6 (or IPv4).
	ErrNoFamily = errors.New("address family is not available")

	// ErrNotListening says that a descriptor handed over is no listening TCP socket.
	ErrNotListening = errors.New("not a listening TCP socket")

	// ErrHostAddress says that a VIP for anyip is an address of the host itself.
	ErrHostAddress = errors.New("is an address of this host")

	// ErrGateway says that a VIP for anyip is the next hop of one of the host's routes.
	ErrGateway = errors.New("is a gateway of this host")

	// ErrNotUnicast says that no host can have the address as a VIP.
	ErrNotUnicast = errors.New("cannot be a VIP")
)

// permission translates the errno of a change to routes or sysctls; any other error is returned as it is.
func permission(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: needs CAP_NET_ADMIN: %w", ErrPermission, err)
	}
	return err
}
