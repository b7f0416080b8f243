package datagram

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// backlogDrops is how many packets the machine has dropped because a CPU had too many
// waiting (net.core.netdev_max_backlog): second column of softnet_stat. All network
// namespaces share that queue, so others' floods drop our datagrams, on lo too.
func backlogDrops(t testing.TB) (sum uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 {
			n, _ := strconv.ParseUint(f[1], 16, 64)
			sum += n
		}
	}
	return sum
}

// dropsBefore is backlogDrops when the test's last socket was made.
var dropsBefore uint64

// lost ends a test that waits in vain: it fails, unless the machine says that it
// dropped packets meanwhile.
func lost(t testing.TB) {
	t.Helper()
	if n := backlogDrops(t) - dropsBefore; n != 0 {
		t.Skipf("the machine is too busy: it has dropped %d packets at its backlog", n)
	}
	t.Fatal("nothing has come in ten seconds")
}
