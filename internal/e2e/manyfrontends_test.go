package e2e

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// frontend i of many, of both families in turn.
func manyVIP(i int) netip.AddrPort {
	if i%2 == 1 {
		return netip.MustParseAddrPort(fmt.Sprintf("[fd96::%x]:80", i))
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(96 + i>>16), byte(i >> 8), byte(i)}), 80)
}

// manyServices is a file of n services with one TCP frontend each.
func manyServices(n int, backend4, backend6 netip.AddrPort) string {
	var b strings.Builder
	b.WriteString("services:\n")
	for i := range n {
		backend := backend4
		if i%2 == 1 {
			backend = backend6
		}
		fmt.Fprintf(&b, "  - {name: s%d, frontends: [\"tcp://%s\"], backends: [%q]}\n", i, manyVIP(i), backend)
	}
	return b.String()
}

func backends46(star *testnet.Star) (four, six netip.AddrPort) {
	return netip.AddrPortFrom(star.Backends[0].IP4, 8080), netip.AddrPortFrom(star.Backends[0].IP6, 8080)
}

// 30,000 services fit any limit of descriptors: their frontends share few sockets.
func TestManyFrontends(t *testing.T) {
	n := 30_000
	if raceDetector {
		n = 5000
	}
	star := testnet.NewStar(t, 1)
	star.Backends[0].Serve(8080, testnet.Named("backend1"))
	four, six := backends46(star)
	began := time.Now()
	b := start(t, star.Balancer, manyServices(n, four, six))
	t.Logf("%d services serve after %v", n, time.Since(began))
	if open := b.descriptors(); open > 120 {
		t.Errorf("%d descriptors are open", open)
	}
	for _, i := range []int{0, 1, n / 2, n/2 + 1, n - 2, n - 1} {
		if name, err := star.Client.AskName(manyVIP(i)); err != nil || name != "backend1" {
			t.Errorf("%s: %q, %v", manyVIP(i), name, err)
		}
		ssh := netip.AddrPortFrom(manyVIP(i).Addr(), sshPort)
		if err := wantRefusal(t, star.Client, "tcp", ssh); err != nil {
			t.Errorf("%s: %v", ssh, err)
		}
	}
	b.signal(syscall.SIGTERM)
	b.exits(30 * time.Second)
	if left := vipRoutes(t, star.Balancer); len(left) > 0 {
		t.Errorf("%d routes are left", len(left))
	}
}

// So do node ports: frontends at the wildcard address.
func TestManyNodePorts(t *testing.T) {
	n := 5000
	if raceDetector {
		n = 1000
	}
	star := testnet.NewStar(t, 1)
	star.Backends[0].Serve(8080, testnet.Named("backend1"))
	four, six := backends46(star)
	var text strings.Builder
	text.WriteString("services:\n")
	for i := range n {
		fmt.Fprintf(&text, "  - {name: s%d, frontends: [\"tcp://0.0.0.0:%d\", \"tcp://[::]:%d\"], backends: [%q, %q]}\n", i, 20000+i, 20000+i, four, six)
	}
	began := time.Now()
	b := start(t, star.Balancer, text.String())
	t.Logf("%d services serve after %v", n, time.Since(began))
	if open := b.descriptors(); open > 120 {
		t.Errorf("%d descriptors are open", open)
	}
	for _, i := range []int{0, n / 2, n - 1} {
		for _, a := range []netip.Addr{star.Balancer.IP4, star.Balancer.IP6} {
			at := netip.AddrPortFrom(a, uint16(20000+i))
			if name, err := star.Client.AskName(at); err != nil || name != "backend1" {
				t.Errorf("%s: %q, %v", at, name, err)
			}
		}
	}
}

// BenchmarkStart is the start of the command with 30,000 services, until all serve.
func BenchmarkStart(b *testing.B) {
	star := testnet.NewStar(b, 1)
	four, six := backends46(star)
	dir := b.TempDir()
	config := filepath.Join(dir, "baton.yaml")
	text := fmt.Sprintf("admin: {socket: %s, http: \"\"}\n%s", filepath.Join(dir, "admin.sock"), manyServices(30_000, four, six))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		cmd := star.Balancer.Command(b.Context(), batonPath, "run", "--config", config, "--state-dir", dir)
		log, err := cmd.StderrPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		lines := bufio.NewScanner(log)
		for lines.Scan() && !strings.Contains(lines.Text(), "msg=serving") {
			b.Log(lines.Text())
		}
		b.StopTimer()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		for lines.Scan() {
		}
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
