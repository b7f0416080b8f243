package bpf

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

const membarrierGlobal = 1 << 0 // linux/membarrier.h

// Grace waits until every program run that had begun before has ended, and what it let pass to the stack has reached its
// socket (synchronize_rcu).
func Grace() error {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno == 0 {
		return nil
	}
	// Not with nohz_full (kernel/sched/membarrier.c). An update of a map of maps waits as long
	// (maybe_wait_bpf_programs in kernel/bpf/syscall.c).
	m, err := graceMaps()
	if err != nil {
		return fmt.Errorf("wait for a grace period: %w", err)
	}
	if err := m.outer.Update(uint32(0), m.inner, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("wait for a grace period: %w", err)
	}
	return nil
}

type nestedMaps struct{ outer, inner *ebpf.Map }

// graceMaps are made when they are first needed and last as long as the process.
var graceMaps = sync.OnceValues(func() (m nestedMaps, err error) {
	inner := &ebpf.MapSpec{Name: "grace_inner", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	if m.inner, err = ebpf.NewMap(inner); err != nil {
		return m, err
	}
	m.outer, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "grace", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: inner,
	})
	return m, err
})
