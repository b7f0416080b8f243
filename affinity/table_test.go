package affinity

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

func client(i int) netip.Addr {
	a := netip.MustParseAddr("fd00::").As16()
	a[12], a[13], a[14], a[15] = byte(i>>24), byte(i>>16), byte(i>>8), byte(i)
	return netip.AddrFrom16(a)
}

func backend(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), uint16(8000+i))
}

func checkGet(t *testing.T, tab *Table, c netip.Addr, now time.Time, timeout time.Duration, want netip.AddrPort) {
	t.Helper()
	got, ok := tab.Get(c, now, timeout)
	if ok != want.IsValid() || got != want {
		t.Errorf("%s at %s: %s, %v; want %s", c, now.Sub(start), got, ok, want)
	}
}

var nobody netip.AddrPort

func TestGet(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	b4, b6 := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("[fd02::1]:65535")
	type set struct {
		client  netip.Addr
		backend netip.AddrPort
		at      time.Duration
	}
	for _, c := range []struct {
		name   string
		sets   []set
		client netip.Addr
		at     time.Duration
		want   netip.AddrPort
	}{
		{"nobody yet", nil, v4, 0, nobody},
		{"another client", []set{{v4, b4, 0}}, v6, 0, nobody},
		{"at once", []set{{v4, b4, 0}}, v4, 0, b4},
		{"IPv6", []set{{v6, b6, 0}}, v6, 0, b6},
		{"IPv4 to IPv6", []set{{v4, b6, 0}}, v4, 0, b6},
		{"IPv6 to IPv4", []set{{v6, b4, 0}}, v6, 0, b4},
		{"IPv4-mapped is IPv4", []set{{netip.AddrFrom16(v4.As16()), b4, 0}}, v4, 0, b4},
		{"IPv4 is IPv4-mapped", []set{{v4, b4, 0}}, netip.AddrFrom16(v4.As16()), 0, b4},
		{"just before the timeout", []set{{v4, b4, 0}}, v4, time.Minute - 1, b4},
		{"at the timeout", []set{{v4, b4, 0}}, v4, time.Minute, nobody},
		{"a new flow refreshes", []set{{v4, b4, 0}, {v4, b4, 50 * time.Second}}, v4, 100 * time.Second, b4},
		{"another backend instead", []set{{v4, b4, 0}, {v4, b6, 1}}, v4, 2, b6},
		{"after the timeout, a new one", []set{{v4, b4, 0}, {v4, b6, time.Hour}}, v4, time.Hour, b6},
		{"no client address", []set{{netip.Addr{}, b4, 0}}, v4, 0, nobody},
		{"no backend address", []set{{v4, nobody, 0}}, v4, 0, nobody},
		{"a clock that goes back", []set{{v4, b4, time.Hour}}, v4, 0, b4},
	} {
		t.Run(c.name, func(t *testing.T) {
			tab := New(Options{})
			for _, s := range c.sets {
				tab.Set(s.client, s.backend, at(s.at))
			}
			checkGet(t, tab, c.client, at(c.at), time.Minute, c.want)
		})
	}
}

func TestGetDoesNotRefresh(t *testing.T) {
	tab := New(Options{})
	tab.Set(client(1), backend(1), at(0))
	for s := range 10 {
		checkGet(t, tab, client(1), at(time.Duration(s)*time.Second), 10*time.Second, backend(1))
	}
	checkGet(t, tab, client(1), at(10*time.Second), 10*time.Second, nobody)
}

// A reload may change the timeout; entries go by the new one.
func TestTimeoutChanges(t *testing.T) {
	tab := New(Options{})
	tab.Set(client(1), backend(1), at(0))
	checkGet(t, tab, client(1), at(time.Minute), time.Second, nobody)
	checkGet(t, tab, client(1), at(time.Minute), time.Hour, backend(1))
}

func TestEvictsTheLongestIdle(t *testing.T) {
	tab := New(Options{Max: 3})
	for i := range 3 {
		tab.Set(client(i), backend(i), at(time.Duration(i)))
	}
	tab.Set(client(0), backend(0), at(3)) // the oldest is 1 now
	tab.Set(client(3), backend(3), at(4))
	checkGet(t, tab, client(1), at(4), time.Hour, nobody)
	tab.Set(client(4), backend(4), at(5))
	checkGet(t, tab, client(2), at(5), time.Hour, nobody)
	for _, i := range []int{0, 3, 4} {
		checkGet(t, tab, client(i), at(5), time.Hour, backend(i))
	}
	if tab.Len() != 3 || tab.Evicted() != 2 {
		t.Errorf("%d entries, %d evicted; want 3, 2", tab.Len(), tab.Evicted())
	}
	tab.Set(client(4), backend(9), at(6)) // one that is there evicts nobody
	if tab.Len() != 3 || tab.Evicted() != 2 {
		t.Errorf("%d entries, %d evicted after an update; want 3, 2", tab.Len(), tab.Evicted())
	}
}

func TestMaxOne(t *testing.T) {
	tab := New(Options{Max: 1})
	for i := range 5 {
		tab.Set(client(i), backend(i), at(time.Duration(i)))
		checkGet(t, tab, client(i), at(time.Duration(i)), time.Hour, backend(i))
	}
	if tab.Len() != 1 || tab.Evicted() != 4 {
		t.Errorf("%d entries, %d evicted; want 1, 4", tab.Len(), tab.Evicted())
	}
}

func TestManyMoreThanMax(t *testing.T) {
	const limit, clients = 1000, 10_000
	tab := New(Options{Max: limit})
	for i := range clients {
		tab.Set(client(i), backend(i%50), at(time.Duration(i)))
	}
	if tab.Len() != limit || tab.Evicted() != clients-limit || tab.entries.made != limit {
		t.Errorf("%d entries, %d evicted, %d made", tab.Len(), tab.Evicted(), tab.entries.made)
	}
	for i := range clients {
		want := nobody
		if i >= clients-limit {
			want = backend(i % 50)
		}
		checkGet(t, tab, client(i), at(clients), time.Hour, want)
	}
}

func TestConcurrentUse(t *testing.T) {
	tab := New(Options{Max: 100})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				c, now := client((g*31+i)%300), at(time.Duration(i)*time.Millisecond)
				if b, ok := tab.Get(c, now, time.Second); ok && b.Addr().IsUnspecified() {
					t.Error("half an entry")
				}
				tab.Set(c, backend(i%5), now)
				if i%100 == 0 {
					tab.Expire(now, 50*time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	checkList(t, tab)
}

// checkList walks the list both ways and compares it with the index.
func checkList(t *testing.T, tab *Table) {
	t.Helper()
	n, last := 0, none
	for r := tab.entries.oldest; r != none; r = tab.entries.at(r).newer {
		e := tab.entries.at(r)
		if e.older != last || tab.index[e.client] != r {
			t.Fatalf("entry %d: older %d, want %d; index %d", r, e.older, last, tab.index[e.client])
		}
		last = r
		n++
	}
	if n != len(tab.index) || tab.entries.newest != last {
		t.Errorf("%d in the list, %d in the index; newest %d, want %d", n, len(tab.index), tab.entries.newest, last)
	}
}

func TestDoesNotAllocate(t *testing.T) {
	tab := New(Options{Max: 64})
	for i := range 64 {
		tab.Set(client(i), backend(i), at(0))
	}
	i := 0
	if n := testing.AllocsPerRun(200, func() {
		i++
		tab.Get(client(i%64), at(time.Second), time.Hour)
		tab.Set(client(i%64), backend(1), at(time.Second))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func Example() {
	tab := New(Options{Max: 1000})
	client, now := netip.MustParseAddr("192.0.2.7"), time.Now()
	tab.Set(client, netip.MustParseAddrPort("10.0.0.1:80"), now)
	fmt.Println(tab.Get(client, now.Add(time.Hour), 3*time.Hour))
	fmt.Println(tab.Get(client, now.Add(4*time.Hour), 3*time.Hour))
	// Output:
	// 10.0.0.1:80 true
	// invalid AddrPort false
}
