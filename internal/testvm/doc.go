// Package testvm owns virtual machines that exist for one run: a Debian kernel other
// than the host's, and programs that run on it as root.
//
//	statuses, err := testvm.Run(ctx, testvm.Spec{
//		Kernel:   "6.1",
//		Files:    []testvm.File{{Source: "bpf.test", Path: "/root/bpf.test"}},
//		Tools:    []string{"ip", "nft"},
//		Commands: []testvm.Command{{Args: []string{"/root/bpf.test", "-test.v"}, Stdout: os.Stdout}},
//	})
//
// The kernel comes from Debian's package as it is, through apt. Everything else of
// the machine is an initramfs: the kernel's network modules, [guest] as its first
// process, and what the caller names. It has cgroup2, bpffs, procfs, sysfs, tracefs
// and debugfs where systems have them, loads modules on demand, and has no network
// but its own loopback. QEMU interprets it (TCG), so neither root nor KVM is needed,
// and it is ten to thirty times slower than the host.
//
// # What it refuses to do
//
// It knows nothing of tests (that is package suite), changes nothing of the host but
// a cache in the user's cache directory, and reaches nothing but apt's archives. It
// runs amd64 only.
//
// # Errors
//
// How a command ends is a [Status], not an error. Of the errors of [Run],
// [ErrTimeout] and [ErrDied] are the machine's; anything else means that there was
// none: no such kernel to be had ([ErrUnavailable]), a file missing, no QEMU.
//
// # Locks
//
// One lock, of the cache directory: see [cache.Cache]. It is held while an entry is looked
// up or made; an entry in use is locked for reading.
//
// [guest]: https://pkg.go.dev/github.com/baton-lb/baton/internal/testvm/guest
package testvm
