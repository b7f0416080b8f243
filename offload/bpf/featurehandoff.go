package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// What a handoff uses. The kernel commit that brought a feature is named where its version is not that of the system call,
// program type or helper of its name.
var (
	featureTCX = Feature{
		Name: "tcx", Since: "6.6", Uses: "programs on devices beside those of others",
		Without: "filters of clsact take its place", probe: haveTCX,
	}
	featureClsact = Feature{
		Name: "clsact", Since: "4.5", Uses: "programs on devices where there is no tcx",
		Without: "nothing is lost where there is tcx", probe: func() error { return inThrowAwayNetNS(haveClsact) },
	}
	featureRing    = Feature{Name: "ring buffer", Since: "5.8", Uses: "events of offloaded flows", probe: func() error { return features.HaveMapType(ebpf.RingBuf) }}
	featureMmap    = Feature{Name: "mmap of arrays", Since: "5.5", Uses: "flows' state, shared with their program", probe: haveMmap} // fc9702273e2e
	featureAtomics = Feature{Name: "atomics", Since: "5.12", Uses: "flows' state, changed by several CPUs", probe: haveAtomics}      // 5ffa25502b5a
	featureLoop    = helperFeature("bpf_loop", "5.17", "TCP options of forwarded packets", asm.FnLoop)
	featureNeigh   = helperFeature("redirect_neigh", "5.10", "the way out of forwarded packets", asm.FnRedirectNeigh)
	featureFIB     = helperFeature("fib_lookup", "4.18", "the way out of forwarded packets", asm.FnFibLookup)
	featureMTU     = helperFeature("check_mtu", "5.12", "packets that are too big for their way out", asm.FnCheckMtu)
	featureClock   = helperFeature("coarse clock", "5.11", "when a flow was last seen", asm.FnKtimeGetCoarseNs)
	featureRepair  = Feature{Name: "TCP_REPAIR", Since: "3.5", Uses: "taking a connection out of its socket", probe: haveRepair}
	featureBarrier = Feature{
		Name: "membarrier", Since: "4.3", Uses: "waiting until no packet is at an earlier step (not with nohz_full)",
		Without: "a slower way takes its place", probe: haveMembarrier,
	}
	featureMeminfo = Feature{Name: "SO_MEMINFO", Since: "4.12", Uses: "seeing that nothing waits out of order", probe: haveMeminfo}
	featureTUN     = Feature{
		Name: "TUN", Since: "2.6.27", Uses: "the parking lot, where packets wait during a handoff",
		Without: "they are dropped then, and repeated after a fifth of a second", probe: haveTUN,
	}
	featureXDP = Feature{
		Name: "XDP", Since: "5.9", Uses: "a shorter way through physical devices, with run --xdp", // aa8d3a716b59
		Without: "the way of tcx or clsact", probe: func() error { return inThrowAwayNetNS(haveXDP) },
	}
	featureXDPDrivers = Feature{
		Name: "XDP of drivers", Since: "6.3", Uses: "knowing which devices can forward in XDP", // d3d854fd6a1d
		Without: "the way of tcx or clsact", probe: haveXDPDrivers,
	}
	featureBPFFS = Feature{
		Name: "bpffs", Since: "4.4", Uses: "offloaded flows that outlive the process",
		Without: "they end with the process", probe: haveBPFFS,
	}
)

func helperFeature(name, since, uses string, helper asm.BuiltinFunc) Feature {
	return Feature{Name: name, Since: since, Uses: uses, probe: func() error { return features.HaveProgramHelper(ebpf.SchedCLS, helper) }}
}

// HandoffFeatures lists what a handoff uses, beside bpf(2), in the order in which to ask. It can do without those that say
// so.
func HandoffFeatures() []Feature {
	return []Feature{
		featureRing, featureMmap, featureAtomics, featureLoop, featureNeigh, featureFIB, featureMTU, featureClock,
		featureTCX, featureClsact, featureRepair, featureMeminfo, featureBarrier, featureTUN, featureXDP, featureXDPDrivers,
		featureBPFFS,
	}
}

// passProgram lets every packet pass.
func passProgram(instructions ...asm.Instruction) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: append(instructions, asm.Mov.Imm(asm.R0, -1), asm.Return()),
	})
}

// haveTCX attaches to a device that does not exist: a kernel with tcx looks for it first.
func haveTCX() error {
	p, err := passProgram()
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := link.AttachTCX(link.TCXOptions{Interface: math.MaxInt32, Program: p, Attach: ebpf.AttachTCXIngress})
	if err == nil {
		return errors.Join(errors.New("a device that does not exist took a program"), l.Close())
	}
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// haveXDP attaches to a loopback device. Before there were links of XDP programs, that was an invalid argument.
func haveXDP() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // XDP_PASS
	})
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := link.AttachXDP(link.XDPOptions{Interface: lo.Attrs().Index, Program: p, Flags: link.XDPGenericMode})
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: %w", ebpf.ErrNotSupported, err)
	}
	if err != nil {
		return err
	}
	return l.Close()
}

func haveXDPDrivers() error {
	_, err := netlink.GenlFamilyGet(netdevFamily)
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%w: no family of that name", ebpf.ErrNotSupported)
	}
	return err
}

func haveClsact() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	err = netlink.QdiscAdd(clsactOf(lo.Attrs().Index))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) { // no such qdisc
		return fmt.Errorf("%w: %w", ebpf.ErrNotSupported, err)
	}
	return err
}

// inThrowAwayNetNS runs f in a network namespace that ends with it.
func inThrowAwayNetNS(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("make a network namespace: %w", err)
			return
		}
		result <- f()
	}()
	return <-result
}

func haveMmap() error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: %w", ebpf.ErrNotSupported, err)
	}
	if err != nil {
		return err
	}
	return m.Close()
}

func haveAtomics() error {
	p, err := passProgram(
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreMem(asm.RFP, -8, asm.R1, asm.DWord),
		asm.FetchAdd.Mem(asm.RFP, asm.R1, asm.DWord, -8),
	)
	const enotsupp = syscall.Errno(524) // what a JIT says; not known to user programs
	if errors.Is(err, unix.EINVAL) || errors.Is(err, enotsupp) {
		return fmt.Errorf("%w: %w", ebpf.ErrNotSupported, err)
	}
	if err != nil {
		return err
	}
	return p.Close()
}

// onSocket asks a TCP socket that goes nowhere.
func onSocket(ask func(fd int) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = ask(fd)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return fmt.Errorf("%w: %w", ebpf.ErrNotSupported, err)
	}
	return err
}

func haveRepair() error {
	return onSocket(func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, 1) })
}

func haveMeminfo() error {
	return onSocket(func(fd int) error {
		_, err := unix.GetsockoptString(fd, unix.SOL_SOCKET, unix.SO_MEMINFO)
		return err
	})
}

// haveMembarrier asks for the command that waits for every CPU. A kernel with CPUs that are never interrupted
// (nohz_full) has it not.
func haveMembarrier() error {
	const query = 0 // linux/membarrier.h
	commands, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, query, 0, 0)
	switch {
	case errno != 0:
		return errno
	case commands&membarrierGlobal == 0:
		return fmt.Errorf("%w: no MEMBARRIER_CMD_GLOBAL", ebpf.ErrNotSupported)
	}
	return nil
}

// haveTUN opens the device; nothing is made before it is given a name.
func haveTUN() error {
	fd, err := unix.Open(tunPath, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("%w: %s: %w", ebpf.ErrNotSupported, tunPath, err)
	}
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// haveBPFFS makes one that is mounted nowhere (fsopen(2), Linux 5.2; before, the kernel lists what it has).
func haveBPFFS() error {
	fd, err := unix.Fsopen("bpf", unix.FSOPEN_CLOEXEC)
	switch {
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%w: %w", ebpf.ErrNotSupported, err)
	case errors.Is(err, unix.ENOSYS):
		return listsBPFFS()
	case err != nil:
		return err
	}
	return errors.Join(unix.FsconfigCreate(fd), unix.Close(fd))
}

func listsBPFFS() error {
	b, err := os.ReadFile("/proc/filesystems")
	if err == nil && !slices.Contains(strings.Fields(string(b)), "bpf") {
		return fmt.Errorf("%w: not in /proc/filesystems", ebpf.ErrNotSupported)
	}
	return err
}
