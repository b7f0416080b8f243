package bpf

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// What can stand in the way of a program.
var (
	// ErrNotSupported says that the kernel lacks a feature; it is wrapped with its name and the first version that has it.
	ErrNotSupported = errors.New("not supported by this kernel")

	// ErrPermission says that the process may not do it; it is wrapped with what that takes.
	ErrPermission = errors.New("no permission")

	// ErrClosed says that what is asked has been closed.
	ErrClosed = errors.New("closed")
)

// explain translates the error of a program that could not be had. What the kernel lacks is asked only now.
func explain(err error, needs []Feature) error {
	for _, f := range needs {
		if lacks := f.Have(); errors.Is(lacks, ErrNotSupported) {
			return lacks
		}
	}
	var verdict *ebpf.VerifierError
	if errors.As(err, &verdict) { // EACCES too, but of the verifier: a fault of the program
		if strictVerifier() {
			return fmt.Errorf("%w: needs CAP_PERFMON beside CAP_BPF (before Linux 5.8 CAP_SYS_ADMIN)", ErrPermission)
		}
		return fmt.Errorf("%+v", verdict)
	}
	for _, errno := range []syscall.Errno{unix.EPERM, unix.EACCES} {
		if errors.Is(err, errno) {
			return fmt.Errorf("%w: needs CAP_BPF and CAP_NET_ADMIN (before Linux 5.8 CAP_SYS_ADMIN, before 5.11 also a high "+
				"RLIMIT_MEMLOCK): %w", ErrPermission, errno)
		}
	}
	return err
}
