// Package wire owns the words between a virtual machine and whoever started it:
// the job that is put into the machine before it boots, and the messages that it
// sends while it works, a gob stream over one virtio port.
//
// One stream for everything keeps the order: what a command wrote arrives before
// the status that it ended with.
//
// It does no I/O of its own.
package wire
