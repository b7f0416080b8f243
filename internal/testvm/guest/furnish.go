package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// environment is what every command gets, before its own variables.
var environment = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/sh", "TMPDIR=/tmp", "LANG=C.UTF-8", "TERM=dumb",
}

type mount struct {
	fs, at, options string
	optional        bool
}

var mounts = []mount{
	{fs: "proc", at: "/proc"},
	{fs: "sysfs", at: "/sys"},
	{fs: "devtmpfs", at: "/dev"},
	{fs: "devpts", at: "/dev/pts", options: "ptmxmode=666"},
	{fs: "tmpfs", at: "/dev/shm", options: "mode=1777"},
	{fs: "tmpfs", at: "/run", options: "mode=755"},
	{fs: "tmpfs", at: "/tmp", options: "mode=1777"},
	{fs: "cgroup2", at: "/sys/fs/cgroup"},
	{fs: "bpf", at: "/sys/fs/bpf", options: "mode=700"},
	{fs: "tracefs", at: "/sys/kernel/tracing", optional: true},
	{fs: "debugfs", at: "/sys/kernel/debug", optional: true},
	{fs: "securityfs", at: "/sys/kernel/security", optional: true},
}

var links = [][2]string{
	{"/proc/self/fd", "/dev/fd"},
	{"fd/0", "/dev/stdin"},
	{"fd/1", "/dev/stdout"},
	{"fd/2", "/dev/stderr"},
	{"/run", "/var/run"},
	{"/proc/self/mounts", "/etc/mtab"},
}

// furnish makes of an initramfs what programs expect of a system.
func furnish() error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.at, 0o755); err != nil && !m.optional {
			return fmt.Errorf("make mount point: %w", err)
		}
		if err := unix.Mount(m.fs, m.at, m.fs, 0, m.options); err != nil && !m.optional {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	for _, l := range links {
		if err := os.Symlink(l[0], l[1]); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("link %s: %w", l[1], err)
		}
	}
	if err := tunDevice(); err != nil {
		return fmt.Errorf("make /dev/net/tun: %w", err)
	}
	if err := unix.Sethostname([]byte("testvm")); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return raiseLimits()
}

// tunDevice makes the one device file by which a module of the network is asked for;
// on other systems that is udev's to do, from modules.devname.
func tunDevice() error {
	if err := os.MkdirAll("/dev/net", 0o755); err != nil {
		return err
	}
	return unix.Mknod("/dev/net/tun", unix.S_IFCHR|0o666, int(unix.Mkdev(10, 200)))
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// raiseLimits gives commands the descriptors that service managers give; the
// kernel itself starts with 4096.
func raiseLimits() error {
	limit := unix.Rlimit{Cur: 1 << 16, Max: 1 << 20}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise limit of descriptors: %w", err)
	}
	return nil
}
