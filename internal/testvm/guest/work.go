package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testvm/wire"
)

// work runs the job. It returns when the host has had time to hear of its end:
// the host ends the machine as soon as it has.
func work() error {
	file, err := openPort()
	if err != nil {
		return err
	}
	defer file.Close()
	p := newPort(file)

	b, err := os.ReadFile(wire.JobFile)
	if err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	job, err := wire.ParseJob(b)
	if err != nil {
		return err
	}
	p.send(wire.Message{Booted: release()})
	for _, m := range job.Modules {
		if err := modprobe(m); err != nil {
			p.trouble(err)
		}
	}
	for _, c := range job.Commands {
		status := p.run(c)
		p.send(wire.Message{Status: &status})
	}
	if job.Collect {
		if err := p.sendFiles(wire.OutDir); err != nil {
			p.trouble(err)
		}
	}
	p.send(wire.Message{End: true})
	time.Sleep(10 * time.Second)
	return nil
}

// openPort finds the host's port by its name.
func openPort() (*os.File, error) {
	for _, module := range []string{"virtio_pci", "virtio_console"} {
		if err := modprobe(module); err != nil {
			return nil, err
		}
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		if err != nil {
			return nil, fmt.Errorf("list virtio ports: %w", err)
		}
		for _, name := range names {
			if b, _ := os.ReadFile(name); strings.TrimSpace(string(b)) != wire.Port {
				continue
			}
			f, err := os.OpenFile("/dev/"+filepath.Base(filepath.Dir(name)), os.O_RDWR, 0)
			if err == nil {
				return f, nil
			}
			if !errors.Is(err, os.ErrNotExist) {
				return nil, fmt.Errorf("open virtio port: %w", err)
			}
		}
	}
	return nil, fmt.Errorf("open virtio port: there is no port called %s", wire.Port)
}

func modprobe(module string) error {
	if out, err := exec.Command("/sbin/modprobe", module).CombinedOutput(); err != nil {
		return fmt.Errorf("load module %s: %w: %s", module, err, strings.TrimSpace(string(out)))
	}
	return nil
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown: " + err.Error()
	}
	return unix.ByteSliceToString(u.Release[:])
}
