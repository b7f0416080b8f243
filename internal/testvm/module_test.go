package testvm

import (
	"maps"
	"slices"
	"testing"
)

func TestClosure(t *testing.T) {
	d := parseDependencies(`kernel/net/sctp/sctp.ko: kernel/lib/libcrc32c.ko kernel/net/ipv6/udp_tunnel.ko
kernel/net/netfilter/nft_ct.ko: kernel/net/netfilter/nf_tables.ko
kernel/net/netfilter/nf_tables.ko:
kernel/net/ipv6/udp_tunnel.ko:
kernel/lib/libcrc32c.ko:
kernel/drivers/char/hw_random/virtio-rng.ko:
kernel/drivers/net/tun.ko:
kernel/drivers/net/netdevsim.ko:
kernel/net/netfilter.ko:
`)
	for _, tc := range []struct {
		name string
		want []string
		got  []string
	}{
		{"name", []string{"tun"}, []string{"kernel/drivers/net/tun.ko"}},
		{"hyphen", []string{"virtio_rng"}, []string{"kernel/drivers/char/hw_random/virtio-rng.ko"}},
		{"what it needs", []string{"sctp"}, []string{"kernel/lib/libcrc32c.ko", "kernel/net/ipv6/udp_tunnel.ko", "kernel/net/sctp/sctp.ko"}},
		{"directory", []string{"net/netfilter"}, []string{"kernel/net/netfilter/nf_tables.ko", "kernel/net/netfilter/nft_ct.ko"}},
		{"none", []string{"ip_vs", "net/sched"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := slices.Sorted(maps.Keys(d.closure(tc.want))); !slices.Equal(got, tc.got) {
				t.Errorf("got %v, want %v", got, tc.got)
			}
		})
	}
}

func TestParseLdd(t *testing.T) {
	got := parseLdd("\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1)\n" +
		"\tlibgone.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f2)\n\tstatically linked\n")
	if want := []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
