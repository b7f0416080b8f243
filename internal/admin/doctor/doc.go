// Package doctor owns what a host allows: it probes the kernel, the limits and
// the rights of this process, and says for a configuration which frontend would
// be captured how, and what would stand in the way.
//
// A probe has three answers: present, absent (with what to do about it), or
// inconclusive (with why). It tries rather than compares versions, and leaves
// no trace: what has to be changed in order to be tried is changed in a network
// namespace that vanishes with the probe.
//
// It refuses to change the host, to judge what a configuration means (that is
// lb's and the store's), and to know the file it came from.
//
// Kernel: /proc; for the probe of AnyIP CAP_SYS_ADMIN, without which its answer
// is inconclusive.
package doctor
