package bpf

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/baton-lb/baton/internal/testnet"
)

// TestSurveyDevices: it says what attaching would do, and does nothing.
func TestSurveyDevices(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("a")
	br0 := &netlink.Bridge{LinkAttrs: named("br0")}
	err := h.Netlink().LinkAdd(br0)
	if err == nil {
		err = h.Netlink().LinkAdd(&netlink.Veth{LinkAttrs: named("eth0"), PeerName: "eth1"})
	}
	if err != nil {
		t.Fatal(err)
	}
	eth1, err := h.Netlink().LinkByName("eth1")
	if err == nil {
		err = h.Netlink().LinkSetMaster(eth1, br0)
	}
	if err != nil {
		t.Fatal(err)
	}
	other, _ := newCounter(t, ebpf.XDP, 2)
	survey := func() map[string]Device {
		t.Helper()
		var list []Device
		var err error
		h.Do(func() { list, err = SurveyDevices() })
		if err != nil {
			t.Fatal(err)
		}
		by := make(map[string]Device)
		for _, d := range list {
			by[d.Name] = d
			if (d.How == "") == (d.Why == "") || (d.How == "") != (d.XDP == "") {
				t.Errorf("%+v", d)
			}
		}
		return by
	}
	found := survey()
	if len(found) != 4 || found["lo"].How != "" || found["eth1"].How != "" || found["eth0"].How == "" || found["br0"].XDP != "bridge is no physical device" {
		t.Errorf("%+v", found)
	}
	if got := attached(t, h, "eth0"); len(got) != 0 {
		t.Errorf("at eth0 there is %q", got)
	}
	l, err := h.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if got := xdpTaken(l); got != "" {
		t.Errorf("%q", got)
	}
	h.Do(func() {
		x, err := link.AttachXDP(link.XDPOptions{Interface: l.Attrs().Index, Program: other})
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { x.Close() })
	})
	if l, err = h.Netlink().LinkByName("eth0"); err != nil {
		t.Fatal(err)
	}
	if got := xdpTaken(l); !strings.HasPrefix(got, "an XDP program is there already (program ") {
		t.Errorf("%q", got)
	}
}
