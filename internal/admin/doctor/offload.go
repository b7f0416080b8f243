package doctor

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

// Device is how the programs that carry flows would be attached to a network
// device.
type Device struct {
	Device string `json:"device"`
	How    string `json:"how,omitempty"` // tcx | clsact; empty = not at all
	XDP    string `json:"xdp,omitempty"` // native, or why not; for run --xdp
	Why    string `json:"why,omitempty"` // why not at all
}

// Handoff is what carries flows in the kernel.
type Handoff struct {
	// Try does what every handoff needs, in the calling thread's network
	// namespace, and takes it away again. lesser is what is missing and only
	// makes handoffs slower.
	Try func() (lesser, err error)
	// Devices lists those of the calling thread's network namespace.
	Devices func() ([]Device, error)
}

// errNoHandoff says that nobody brought one.
var errNoHandoff = errors.New("not part of this program")

// trial is the answer of Handoff.Try.
type trial struct{ lesser, err error }

// tryHandoff asks once, elsewhere.
func tryHandoff(h *Handoff) func() trial {
	return sync.OnceValue(func() (t trial) {
		if h == nil {
			return trial{err: errNoHandoff}
		}
		err := elsewhere(func() error {
			t.lesser, t.err = h.Try()
			return nil
		})
		if err != nil {
			t.err = err
		}
		return t
	})
}

func probeHandoff(h *host) Finding {
	const todo = "flows stay in userspace, where everything else works; see docs/kernel-requirements.md"
	if lacks := h.handoffLacks(); lacks != "" {
		return absent("run as root, or give the capability; without it "+todo, "handoffs need %s", lacks)
	}
	switch t := h.handoff(); {
	case errors.Is(t.err, errNoNamespace):
		return Finding{Answer: Inconclusive, Detail: t.err.Error()}
	case t.err != nil:
		return absent(todo, "%v", t.err)
	case t.lesser != nil:
		return present("live flows can be handed to the kernel; a handoff under load costs a fifth of a second: %v", t.lesser)
	}
	return present("live flows can be handed to the kernel")
}

// handoffLacks names a capability that no handoff can do without; "" = none is known
// to be missing. CAP_SYS_ADMIN stands for those of BPF.
func (h *host) handoffLacks() string {
	switch {
	case h.capsErr != nil:
		return ""
	case !h.has(unix.CAP_NET_ADMIN):
		return "CAP_NET_ADMIN"
	case h.has(unix.CAP_SYS_ADMIN):
		return ""
	case !h.has(unix.CAP_BPF):
		return "CAP_BPF"
	case !h.has(unix.CAP_PERFMON):
		return "CAP_PERFMON"
	}
	return ""
}

// devices lists the devices and how many of them would carry flows.
func (h *host) devices() (all []Device, fit int, err error) {
	if h.o.Handoff == nil || h.o.Handoff.Devices == nil {
		return nil, 0, errNoHandoff
	}
	all, err = h.o.Handoff.Devices()
	for _, d := range all {
		if d.How != "" {
			fit++
		}
	}
	return all, fit, err
}

// bpfPath says whether flows can be carried by BPF here.
func (h *host) bpfPath(fit int, devicesErr error) Path {
	p := Path{Path: flow.PathBPF}
	f := probeHandoff(h)
	switch {
	case f.Answer != Present:
		p.Answer, p.Detail, p.Todo = f.Answer, f.Detail, f.Todo
	case devicesErr != nil:
		p.Answer, p.Detail = Inconclusive, devicesErr.Error()
	case fit == 0:
		p.Answer, p.Detail, p.Todo = Absent, "no network device is one that flows can pass in the kernel", "nothing to do while all clients are on this host"
	default:
		p.Answer, p.Detail = Present, fmt.Sprintf("live TCP flows and UDP sessions, at %s", devicesText(fit))
	}
	return p
}

func devicesText(n int) string {
	if n == 1 {
		return "one network device"
	}
	return fmt.Sprintf("%d network devices", n)
}

// offload finds services that ask for a way through the kernel that is not
// there.
func (e *examination) offload(paths []Path) (problems []string) {
	for _, s := range e.Services {
		path, asks := asked(s.Offload)
		if !asks {
			continue
		}
		for _, p := range paths {
			if p.Path == path && p.Answer == Absent {
				problems = append(problems, fmt.Sprintf("service %s: %s: path %s: %s", s.Name, describe(s.Offload), path, p.Detail))
			}
		}
	}
	return problems
}

// asked is the path that must be there for a policy.
func asked(o lb.Offload) (flow.PathName, bool) {
	switch {
	case o.Mode == lb.OffloadNever:
		return "", false
	case o.Path == lb.OffloadPathFlowtable:
		return flow.PathFlowtable, true
	case o.Path == lb.OffloadPathBPF, o.Mode == lb.OffloadAlways:
		return flow.PathBPF, true
	}
	return "", false
}

func describe(o lb.Offload) string {
	if o.Mode == lb.OffloadAlways {
		return "offload.mode always"
	}
	return "offload.path " + string(o.Path)
}
