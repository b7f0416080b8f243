package main

import (
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

func main() {
	if os.Getpid() != 1 {
		if err := work(); err != nil {
			fmt.Fprintln(os.Stderr, "guest:", err)
		}
		return
	}
	if err := first(); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err) // the console
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {} // should the end of process 1 come first, the kernel panics
}

// first is process 1: it returns when the worker has ended.
func first() error {
	if err := furnish(); err != nil {
		return err
	}
	worker := exec.Command("/proc/self/exe")
	worker.Stdout, worker.Stderr = os.Stdout, os.Stderr
	worker.Env = environment
	if err := worker.Start(); err != nil {
		return fmt.Errorf("start worker: %w", err)
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("wait for children: %w", err)
		case pid == worker.Process.Pid:
			return nil
		}
	}
}
