// Package proc owns what /proc says of cost: CPU time and memory of processes,
// busy time of the machine, and what machine it is.
//
// It reads and adds up, and refuses to interpret. Times of processes are exact to
// the nanosecond (schedstat); those of the machine are sampled by the kernel's
// tick on most kernels, so they are good for sums over a second, not for less.
//
// Kernel: CONFIG_SCHED_INFO (schedstat), smaps_rollup (Linux 4.14). Reading memory
// of another user's process needs CAP_SYS_PTRACE.
package proc
