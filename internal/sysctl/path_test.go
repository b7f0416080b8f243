package sysctl

import "testing"

func TestPath(t *testing.T) {
	for _, tc := range []struct{ root, want string }{
		{"", "/proc/sys/net/ipv4/ip_forward"},
		{"/host/proc/sys", "/host/proc/sys/net/ipv4/ip_forward"},
		{"/host/proc/sys/", "/host/proc/sys/net/ipv4/ip_forward"},
	} {
		t.Setenv(Variable, tc.root)
		if got := Path("net/ipv4/ip_forward"); got != tc.want {
			t.Errorf("%q: got %s, want %s", tc.root, got, tc.want)
		}
	}
}
