package bpf

import "golang.org/x/sys/unix"

// threadHas reports whether the calling thread has a capability in effect. It errs on the side of yes.
func threadHas(capability int) bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return true
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0
}

// strictVerifier reports whether the verifier refuses this thread's programs what it grants others: pointers that are
// compared, or kept on the stack (bpf_allow_ptr_leaks in include/linux/bpf.h).
func strictVerifier() bool { return !threadHas(unix.CAP_PERFMON) && !threadHas(unix.CAP_SYS_ADMIN) }
