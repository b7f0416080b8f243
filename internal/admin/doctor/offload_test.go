package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

func devices(list ...Device) func() ([]Device, error) {
	return func() ([]Device, error) { return list, nil }
}

var (
	lo   = Device{Device: "lo", Why: "flows on loopback stay in userspace"}
	eth0 = Device{Device: "eth0", How: "tcx"}
	eth1 = Device{Device: "eth1", How: "clsact"}
)

func TestBPFPath(t *testing.T) {
	testnet.RequireRoot(t)
	works := func() (error, error) { return nil, nil }
	for _, tc := range []struct {
		name    string
		handoff *Handoff
		want    Answer
		text    string
	}{
		{"one device", &Handoff{works, devices(lo, eth0)}, Present, "at one network device"},
		{"two devices", &Handoff{works, devices(lo, eth0, eth1)}, Present, "at 2 network devices"},
		{"no parking lot", &Handoff{func() (error, error) { return errors.New("no TUN"), nil }, devices(eth0)}, Present, "at one"},
		{"loopback alone", &Handoff{works, devices(lo)}, Absent, "no network device"},
		{"an old kernel", &Handoff{func() (error, error) { return nil, errors.New("bpf_loop (Linux 5.17)") }, devices(eth0)}, Absent, "bpf_loop (Linux 5.17)"},
		{"no devices to be seen", &Handoff{works, func() ([]Device, error) { return nil, errors.New("no netlink") }}, Inconclusive, "no netlink"},
		{"no program", nil, Absent, "not part of this program"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := Examine(t.Context(), Options{Handoff: tc.handoff})
			i := slices.IndexFunc(r.Paths, func(p Path) bool { return p.Path == flow.PathBPF })
			if p := r.Paths[i]; p.Answer != tc.want || !strings.Contains(p.Detail, tc.text) || p.Answer == Absent && p.Todo == "" {
				t.Errorf("%+v", p)
			}
			if !r.Fine {
				t.Errorf("a host cannot be wrong: %q", r.Problems)
			}
		})
	}
}

func TestHandoffSaysWhatIsSlower(t *testing.T) {
	testnet.RequireRoot(t)
	h := newHost(Options{Handoff: &Handoff{Try: func() (error, error) { return errors.New("no TUN"), nil }}})
	if f := probeHandoff(h); f.Answer != Present || !strings.HasSuffix(f.Detail, ": no TUN") {
		t.Errorf("%+v", f)
	}
}

// TestTransparent: what the host lacks is said, with what it means for services that ask.
func TestTransparent(t *testing.T) {
	testnet.RequireRoot(t)
	asks, quiet := service("asks", []string{"tcp://10.96.0.1:80"}, nil), service("quiet", []string{"tcp://10.96.0.2:80"}, nil)
	asks.ClientAddress = lb.Transparent
	for _, tc := range []struct {
		name string
		try  func() Finding
		want Answer
		text string
	}{
		{"there", func() Finding { return present("yes") }, Present, "yes"},
		{"too old", func() Finding { return absent("", "bpf_skc_lookup_tcp (Linux 5.2)") }, Absent, "bpf_skc_lookup_tcp (Linux 5.2)"},
		{"unknown", func() Finding { return inconclusive(errors.New("no netlink")) }, Inconclusive, "no netlink"},
		{"no program", nil, Absent, "not part of this program"},
	} {
		r := Examine(t.Context(), Options{Transparent: tc.try, Config: &Config{Services: []lb.Service{asks, quiet}}})
		i := slices.IndexFunc(r.Probes, func(f Finding) bool { return f.Probe == "transparent" })
		if f := r.Probes[i]; f.Answer != tc.want || !strings.Contains(f.Detail, tc.text) || f.Answer == Absent && f.Todo == "" {
			t.Errorf("%s: %+v", tc.name, f)
		}
		var masked []string
		for _, w := range r.Warnings {
			if strings.Contains(w, "are masked") {
				masked = append(masked, w)
			}
		}
		var want []string
		if tc.want == Absent {
			want = []string{"service asks: clientAddress transparent: its clients are masked: " + r.Probes[i].Detail}
		}
		if !slices.Equal(masked, want) {
			t.Errorf("%s: warnings %q, want %q", tc.name, masked, want)
		}
	}
}

// TestConfigAsksForOffload: only what is asked for by name must be there.
func TestConfigAsksForOffload(t *testing.T) {
	yes := []Path{{Path: flow.PathBPF, Answer: Present}, {Path: flow.PathFlowtable, Answer: Absent, Detail: "later"}}
	no := []Path{{Path: flow.PathBPF, Answer: Absent, Detail: "too old"}, {Path: flow.PathFlowtable, Answer: Absent, Detail: "later"}}
	unknown := []Path{{Path: flow.PathBPF, Answer: Inconclusive, Detail: "no right to ask"}}
	for _, tc := range []struct {
		offload lb.Offload
		paths   []Path
		want    string
	}{
		{lb.Offload{Mode: lb.OffloadAuto, Path: lb.OffloadPathAuto}, no, ""},
		{lb.Offload{Mode: lb.OffloadNever, Path: lb.OffloadPathBPF}, no, ""},
		{lb.Offload{Mode: lb.OffloadAlways, Path: lb.OffloadPathAuto}, yes, ""},
		{lb.Offload{Mode: lb.OffloadAlways, Path: lb.OffloadPathAuto}, unknown, ""},
		{lb.Offload{Mode: lb.OffloadAlways, Path: lb.OffloadPathAuto}, no, "service web: offload.mode always: path bpf: too old"},
		{lb.Offload{Mode: lb.OffloadAlways, Path: lb.OffloadPathBPF}, no, "service web: offload.mode always: path bpf: too old"},
		{lb.Offload{Mode: lb.OffloadAuto, Path: lb.OffloadPathBPF}, no, "service web: offload.path bpf: path bpf: too old"},
		{lb.Offload{Mode: lb.OffloadAuto, Path: lb.OffloadPathFlowtable}, yes, "service web: offload.path flowtable: path flowtable: later"},
	} {
		s := service("web", nil, nil)
		s.Offload = tc.offload
		e := examination{Config: &Config{Services: []lb.Service{s}}}
		var want []string
		if tc.want != "" {
			want = []string{tc.want}
		}
		if got := e.offload(tc.paths); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", fmt.Sprint(tc.offload), got, want)
		}
	}
}

// Without a right that every handoff needs, it is certain that there will be none.
func TestHandoffRights(t *testing.T) {
	all := ^uint64(0)
	for _, tc := range []struct {
		caps  uint64
		lacks string
	}{
		{all, ""},
		{all &^ (1 << unix.CAP_NET_ADMIN), "CAP_NET_ADMIN"},
		{all &^ (1 << unix.CAP_BPF) &^ (1 << unix.CAP_SYS_ADMIN), "CAP_BPF"},
		{all &^ (1 << unix.CAP_PERFMON) &^ (1 << unix.CAP_SYS_ADMIN), "CAP_PERFMON"},
		{all &^ (1 << unix.CAP_PERFMON) &^ (1 << unix.CAP_BPF), ""},
	} {
		h := &host{caps: tc.caps, handoff: func() trial { return trial{} }}
		if got := h.handoffLacks(); got != tc.lacks {
			t.Errorf("capabilities %x lack %q, want %q", tc.caps, got, tc.lacks)
		}
		if f := probeHandoff(h); (f.Answer == Absent) != (tc.lacks != "") {
			t.Errorf("capabilities %x: %+v", tc.caps, f)
		}
	}
}
