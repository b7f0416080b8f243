package testvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/baton-lb/baton/internal/testvm/wire"
)

// machine is a running QEMU.
type machine struct {
	cmd     *exec.Cmd
	stream  io.ReadCloser // what the guest says
	input   io.Closer
	console string        // file with the guest's console
	said    *bytes.Buffer // QEMU's own words, complete after ended is closed
	ended   chan struct{}
	err     error // of its end, to be read after ended is closed
}

// commandLine makes a fault of the kernel the end of the machine. The rest saves
// time, which an interpreted machine has not got; no_timer_check because a timer that
// a busy host lets wait looks broken to the kernel, which then panics.
const commandLine = "console=ttyS0 quiet panic=-1 oops=panic no_timer_check mitigations=off init_on_alloc=0 no5lvl nokaslr rcupdate.rcu_expedited=1"

// cpuModel has everything but fast "rep movsb": QEMU would do it byte by byte, and
// the kernel would use it for every copy.
const cpuModel = "max,-erms,-fsrm"

func (s Spec) qemuArgs(k kernel, initramfs, console string) []string {
	return []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "pc", "-accel", "tcg,thread=multi", "-cpu", cpuModel,
		"-smp", strconv.Itoa(s.CPUs), "-m", strconv.Itoa(s.Memory),
		"-kernel", k.image(), "-initrd", initramfs, "-append", commandLine,
		"-serial", "file:" + console,
		"-device", "virtio-serial-pci",
		"-chardev", "stdio,id=guest,signal=off",
		"-device", "virtserialport,chardev=guest,name=" + wire.Port,
	}
}

// startMachine boots. The machine ends with ctx, and with this process.
func (s Spec) startMachine(ctx context.Context, k kernel, work string) (*machine, error) {
	qemu, err := lookTool("qemu-system-x86_64")
	if err != nil {
		return nil, err
	}
	initramfs := filepath.Join(work, "initramfs")
	if err := s.writeInitramfs(ctx, k, work, initramfs); err != nil {
		return nil, err
	}
	m := &machine{console: filepath.Join(work, "console"), said: new(bytes.Buffer), ended: make(chan struct{})}
	m.cmd = exec.CommandContext(ctx, qemu, s.qemuArgs(k, initramfs, m.console)...)
	m.cmd.Stderr = m.said
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	// The stream is read to its end by us, so Wait must not close it.
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start QEMU: %w", err)
	}
	m.cmd.Stdout, m.stream = write, read
	// Nothing is said to the guest, but at the end of its input QEMU would unplug the port.
	if m.input, err = m.cmd.StdinPipe(); err != nil {
		return nil, errors.Join(fmt.Errorf("start QEMU: %w", err), read.Close(), write.Close())
	}
	started := make(chan error)
	go m.run(started)
	err = <-started
	_ = write.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start QEMU: %w", err), read.Close())
	}
	return m, nil
}

// run keeps the thread that started QEMU until it has ended: the kernel takes the
// thread's end for that of its parent.
func (m *machine) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := m.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	m.err = m.cmd.Wait()
	close(m.ended)
}

// kill ends the machine and waits for its end.
func (m *machine) kill() {
	_ = m.cmd.Process.Kill()
	<-m.ended
	_ = m.stream.Close()
}

// lastWords is what to look at when a machine ended by itself.
func (m *machine) lastWords() string {
	console, _ := os.ReadFile(m.console)
	lines := strings.Split(strings.TrimSpace(string(console)), "\n")
	lines = lines[max(0, len(lines)-60):]
	return fmt.Sprintf("QEMU: %v %s\nconsole:\n%s", m.err, bytes.TrimSpace(m.said.Bytes()), strings.Join(lines, "\n"))
}
