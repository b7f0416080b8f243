package main

import (
	"fmt"
	"net/netip"
	"time"
)

// humanBytes writes n in at most five characters: 999, 1.5K, 12M.
func humanBytes(n uint64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	f, units := float64(n), "KMGTPE"
	for i := range len(units) {
		f /= 1024
		if f < 9.95 {
			return fmt.Sprintf("%.1f%c", f, units[i])
		}
		if f < 999.5 || i == len(units)-1 {
			return fmt.Sprintf("%.0f%c", f, units[i])
		}
	}
	return ""
}

// humanAge writes d in at most five characters: 350ms, 12s, 3m12s, 42m, 2h5m,
// 3d4h.
func humanAge(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 10*time.Minute:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 10*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	case d < 10*24*time.Hour:
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// addrPort is empty for an address that is not there.
func addrPort(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// plural writes "1 flow", "2 flows".
func plural[N int | int64 | uint64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
