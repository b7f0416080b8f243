package relay

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/testnet"
)

// bulkVIP makes TestBulkPeers the peers of a bulk service at that address.
const bulkVIP = "RELAY_TEST_BULK_VIP"

// TestBulkPeers is the other end of TestFairness, in a process of its own: its
// work must not delay the relay's goroutines. It says where its backend is, and
// once it is told to, some clients read as fast as they can and others never do.
func TestBulkPeers(t *testing.T) {
	to := os.Getenv(bulkVIP)
	if to == "" {
		t.Skip("this is a part of TestFairness")
	}
	block := make([]byte, 256<<10)
	addr, _ := backend(t, func(c net.Conn) {
		for {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	})
	fmt.Println("backend", addr)
	orders := bufio.NewScanner(os.Stdin)
	orders.Scan()
	for i := range 24 {
		c := dial(t, netip.MustParseAddrPort(to))
		_ = c.SetDeadline(time.Time{})
		if i%6 == 0 {
			go func() {
				buf := make([]byte, 256<<10)
				for {
					if _, err := c.Read(buf); err != nil {
						return
					}
				}
			}()
		}
	}
	fmt.Println("flowing")
	orders.Scan() // to the end of the test
	os.Exit(0)
}

// Clients that never read, and flows at full speed, keep a small one on the same
// loop waiting for no longer than their turns take.
func TestFairness(t *testing.T) {
	bulk := netip.MustParseAddrPort("127.0.1.2:80")
	peers := exec.Command(os.Args[0], "-test.run=^TestBulkPeers$")
	peers.Env = append(os.Environ(), bulkVIP+"="+bulk.String())
	orders, err := peers.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := peers.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := peers.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		orders.Close()
		_ = peers.Wait()
	}()
	said := bufio.NewScanner(out)
	said.Scan()
	source, err := netip.ParseAddrPort(strings.TrimPrefix(said.Text(), "backend "))
	if err != nil {
		t.Fatal(err)
	}

	w := newWorld(t, Options{Loops: 1})
	echo, _ := backend(t, testnet.Echo)
	w.serve(service("web", vip, echo), service("bulk", bulk, source))
	fmt.Fprintln(orders)
	said.Scan()
	c := dial(t, vip)
	var took []time.Duration
	for i := range 300 {
		start := time.Now()
		if err := testnet.Ask(c, strings.Repeat("x", i)); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	t.Logf("median %v, p99 %v", took[len(took)/2], took[len(took)*99/100])
	if p99 := took[len(took)*99/100]; p99 > 200*time.Millisecond {
		t.Errorf("the p99 of a small flow is %v", p99)
	}
}
