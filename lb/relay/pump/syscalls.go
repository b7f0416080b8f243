package pump

import (
	"errors"

	"golang.org/x/sys/unix"
)

// read and write are the system calls, begun again when a signal interrupts
// them; n is never negative.

func read(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

func write(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Write(fd, b) // the runtime ignores SIGPIPE here
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

func splice(from, to, n int) (int, error) {
	for {
		moved, err := unix.Splice(from, nil, to, nil, n, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if !errors.Is(err, unix.EINTR) {
			return int(max(moved, 0)), err
		}
	}
}
