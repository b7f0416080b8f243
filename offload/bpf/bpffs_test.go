package bpf

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/testnet"
)

// mountForTest is a bpffs that ends with the test, and a directory in it for the host.
func mountForTest(t testing.TB, h *testnet.Host) (stateDir, dir string) {
	t.Helper()
	stateDir = t.TempDir()
	t.Cleanup(func() { _ = unix.Unmount(bpffsPath(stateDir), unix.MNT_DETACH) })
	var err error
	h.Do(func() { dir, err = MountBPFFS(stateDir) })
	if err != nil {
		t.Fatal(err)
	}
	return stateDir, dir
}

func TestMountBPFFS(t *testing.T) {
	star := testnet.NewStar(t, 0)
	stateDir, dir := mountForTest(t, star.Balancer)
	if ok, err := onBPFFS(dir); !ok || err != nil {
		t.Fatalf("%s is on a bpffs: %t, %v", dir, ok, err)
	}
	if ours, err := mountedByUs(bpffsPath(stateDir)); !ours || err != nil {
		t.Errorf("mounted by us: %t, %v", ours, err)
	}
	other := ""
	for range 2 { // what is there is adopted
		star.Balancer.Do(func() {
			if again, err := MountBPFFS(stateDir); again != dir || err != nil {
				t.Errorf("again: %s, %v, want %s", again, err, dir)
			}
		})
		star.Client.Do(func() {
			var err error
			if other, err = MountBPFFS(stateDir); other == dir || err != nil {
				t.Errorf("another namespace has %s, %v", other, err)
			}
		})
	}
	if n := mountsAt(t, bpffsPath(stateDir)); n != 1 {
		t.Errorf("mounted %d times", n)
	}
	star.Balancer.Do(func() {
		if done, err := UnmountBPFFS(stateDir); done || err != nil {
			t.Errorf("unmounted, with another namespace's directory there: %t, %v", done, err)
		}
	})
	if err := os.Mkdir(filepath.Join(other, "pin"), 0o700); err != nil {
		t.Fatal(err)
	}
	unmount := func() (done bool) {
		star.Client.Do(func() {
			var err error
			if done, err = UnmountBPFFS(stateDir); err != nil {
				t.Error(err)
			}
		})
		return done
	}
	if unmount() {
		t.Error("unmounted with a pin there")
	}
	if err := os.Remove(filepath.Join(other, "pin")); err != nil {
		t.Fatal(err)
	}
	if !unmount() || mountsAt(t, bpffsPath(stateDir)) != 0 {
		t.Error("still mounted")
	}
	if unmount() {
		t.Error("unmounted what is not there")
	}
	if left, err := os.ReadDir(stateDir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// mountsAt is how many mounts are stacked at a path.
func mountsAt(t *testing.T, path string) (n int) {
	t.Helper()
	b, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if point, _ := parseMount(line); point == path {
			n++
		}
	}
	return n
}

func TestMountBPFFSInTheWay(t *testing.T) {
	testnet.RequireRoot(t)
	mount := func(t *testing.T, at, kind string, flags uintptr) {
		t.Helper()
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("x", at, kind, flags, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	}
	for _, tc := range []struct {
		name  string
		setup func(t *testing.T, at string)
		want  string
	}{
		{"files", func(t *testing.T, at string) {
			if err := os.MkdirAll(filepath.Join(at, "file"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, "not empty: there is file"},
		{"a file", func(t *testing.T, at string) {
			if err := os.WriteFile(at, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a directory"},
		{"a read-only bpffs", func(t *testing.T, at string) { mount(t, at, "bpf", unix.MS_RDONLY) }, "read-only"},
		{"somebody else's bpffs", func(t *testing.T, at string) { mount(t, at, "bpf", 0) }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stateDir := t.TempDir()
			tc.setup(t, bpffsPath(stateDir))
			_, err := MountBPFFS(stateDir)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if err != nil {
				return
			}
			if done, err := UnmountBPFFS(stateDir); done || err != nil || mountsAt(t, bpffsPath(stateDir)) != 1 {
				t.Errorf("unmounted what is somebody else's: %t, %v", done, err)
			}
		})
	}
}

// without runs f on a thread that lacks a capability, and ends with it.
func without(t *testing.T, capability int, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		err := unix.Capget(&hdr, &data[0])
		if err == nil {
			data[capability/32].Effective &^= 1 << (capability % 32)
			err = unix.Capset(&hdr, &data[0])
		}
		if err != nil {
			done <- err
			return
		}
		f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestMountBPFFSNeedsCapSysAdmin(t *testing.T) {
	testnet.RequireRoot(t)
	stateDir := t.TempDir()
	without(t, unix.CAP_SYS_ADMIN, func() {
		if _, err := MountBPFFS(stateDir); !errors.Is(err, ErrPermission) || !strings.Contains(err.Error(), "CAP_SYS_ADMIN") {
			t.Errorf("without CAP_SYS_ADMIN: %v", err)
		}
	})
}

// TestMountBPFFSRemovesWhatIsGone finds pins of a namespace whose inode is used again.
func TestMountBPFFSRemovesWhatIsGone(t *testing.T) {
	h := testnet.New(t).Host("a")
	stateDir, dir := mountForTest(t, h)
	gone := dir + "0"
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := pinnedMaps(gone, twoMaps()); err != nil {
		t.Fatal(err)
	}
	h.Do(func() {
		if _, err := MountBPFFS(stateDir); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.Stat(gone); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

func TestParseMount(t *testing.T) {
	for line, want := range map[string][2]string{
		`36 35 98:0 / /var/lib/ba\040ton/bpf rw,noatime master:1 - bpf baton rw,mode=700`: {"/var/lib/ba ton/bpf", "baton"},
		`36 35 98:0 / /a rw - bpf none rw`:                                                {"/a", "none"},
		`36 35`:                                                                           {}, ``: {},
	} {
		if point, source := parseMount(line); point != want[0] || source != want[1] {
			t.Errorf("%q: %q, %q", line, point, source)
		}
	}
}

func TestPrivateMounts(t *testing.T) {
	testnet.RequireRoot(t)
	if private, err := PrivateMounts(); err != nil || private {
		t.Errorf("this process: %t, %v", private, err)
	}
	done := make(chan bool)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			t.Error(err)
		}
		private, _ := PrivateMounts()
		done <- private
	}()
	if !<-done {
		t.Error("a mount namespace of its own was not noticed")
	}
}
