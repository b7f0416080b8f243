package doctor

import (
	"context"

	"github.com/baton-lb/baton/internal/flow"
)

// Answer is what a probe says.
type Answer string

// The answers.
const (
	Present      Answer = "present"
	Absent       Answer = "absent"
	Inconclusive Answer = "inconclusive"
)

// Finding is the answer of one probe.
type Finding struct {
	Probe  string `json:"probe"`
	Answer Answer `json:"answer"`
	Detail string `json:"detail,omitempty"`
	Todo   string `json:"todo,omitempty"` // what to do about it
}

// Path is one way to carry flows, and whether this host has it.
type Path struct {
	Path   flow.PathName `json:"path"`
	Answer Answer        `json:"answer"`
	Detail string        `json:"detail,omitempty"`
	Todo   string        `json:"todo,omitempty"`
}

// Report is everything that the doctor found.
type Report struct {
	Probes    []Finding  `json:"probes"`
	Paths     []Path     `json:"paths"`
	Devices   []Device   `json:"devices,omitempty"`
	Frontends []Frontend `json:"frontends,omitempty"` // of the configuration
	Warnings  []string   `json:"warnings,omitempty"`
	Problems  []string   `json:"problems,omitempty"` // what the configuration asks for and cannot work
	Fine      bool       `json:"fine"`               // there are no problems
}

// Probe is a question to the host.
type Probe struct {
	Name string
	Run  func() Finding
}

// Options says what to examine. The zero value works.
type Options struct {
	StateDir string  // "" = not looked at
	Config   *Config // nil = the host only

	Probes []Probe      // to ask besides our own
	Guard  func() error // attaches a guard in the calling thread's namespace and takes it away again; nil = there is none

	Handoff *Handoff // nil = there is none

	// Transparent has clients' addresses kept in the calling thread's namespace, and
	// takes that away again. nil = there is none.
	Transparent func() Finding

	// Serving is set when the examining process serves the configuration
	// itself: its own sockets do not stand in its way.
	Serving bool
}

// Examine probes the host, in the network namespace of the calling thread.
func Examine(ctx context.Context, o Options) Report {
	h := newHost(o)
	var r Report
	for _, p := range probes {
		if ctx.Err() != nil {
			break
		}
		f := p.run(h)
		f.Probe = p.name
		r.Probes = append(r.Probes, f)
	}
	for _, p := range o.Probes {
		if ctx.Err() != nil {
			break
		}
		f := p.Run()
		f.Probe = p.Name
		r.Probes = append(r.Probes, f)
	}
	devices, fit, err := h.devices()
	r.Devices, r.Paths = devices, paths(h.bpfPath(fit, err))
	if o.Config != nil {
		o.Config.examine(h, &r)
	}
	r.Fine = len(r.Problems) == 0
	return r
}

// paths is what carries flows in this version.
func paths(bpf Path) []Path {
	const later = "this version does not have it"
	return []Path{
		{Path: flow.PathUserspace, Answer: Present, Detail: "needs nothing of this host"},
		bpf,
		{Path: flow.PathFlowtable, Answer: Absent, Detail: later},
		{Path: flow.PathKernel, Answer: Absent, Detail: later},
	}
}

// probes are asked in this order.
var probes = []struct {
	name string
	run  func(*host) Finding
}{
	{"kernel", probeKernel},
	{"root", probeRoot},
	{"CAP_NET_ADMIN", probeNetAdmin},
	{"CAP_NET_BIND_SERVICE", probeNetBind},
	{"CAP_NET_RAW", probeNetRaw},
	{"CAP_BPF", probeBPF},
	{"CAP_PERFMON", probePerfmon},
	{"CAP_SYS_ADMIN", probeSysAdmin},
	{"CAP_SYS_RESOURCE", probeSysResource},
	{"network namespace", probeNamespace},
	{"instance", probeInstance},
	{"state directory", probeStateDir},
	{"descriptors", probeDescriptors},
	{"backlog", probeBacklog},
	{"local ports", probeLocalPorts},
	{"loopback", probeLoopback},
	{"IPv6", probeIPv6},
	{"nonlocal bind", probeNonlocalBind},
	{"anyip", probeAnyIP},
	{"guard", probeGuard},
	{"handoff", probeHandoff},
	{"transparent", probeTransparent},
	{"splice", probeSplice},
	{"TCP_USER_TIMEOUT", probeUserTimeout},
	{"keepalive", probeKeepalive},
	{"MPTCP", probeMPTCP},
}
