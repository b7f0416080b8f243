// Command guest is the first process of a virtual machine: it mounts what a Linux
// system has mounted, runs the job that lies in the initramfs, and tells the host
// through a virtio port what happens.
//
// It runs twice. Process 1 mounts, starts the other and reaps orphans, as every
// system's first process must: a test that waits for a grandchild's end would wait
// for ever. The other does the work, with os/exec waiting for what it started.
//
// It knows nothing of tests, and ends the machine when it cannot go on.
//
// Kernel: what [github.com/baton-lb/baton/internal/testvm] boots.
package main
