package lb

// Words of the service policies, as baton.yaml writes them.
type (
	Algorithm     string // balance
	AffinityBy    string // affinity.by
	Probe         string // health.probe
	ClientAddress string // clientAddress
	RemovedPolicy string // onBackendRemoved
	OffloadMode   string // offload.mode
	OffloadPath   string // offload.path
	SteerChoose   string // steer.choose
	SteerAbsent   string // steer.whenAbsent
	SCTPMode      string // sctp.mode
	Multihoming   string // sctp.multihoming
	BackendState  string // backends[].state
	NonePolicy    string // what a frontend without usable backends does
)

// The values of the words above. The zero value of AffinityBy and Probe is
// "none"; that of BackendState is ready, that of NonePolicy refuse.
const (
	RoundRobin       Algorithm = "round-robin"
	LeastConnections Algorithm = "least-connections"
	Random           Algorithm = "random" // the less loaded of two
	SourceHash       Algorithm = "source-hash"
	Maglev           Algorithm = "maglev"

	NoAffinity AffinityBy = ""
	ByClientIP AffinityBy = "client-ip"

	NoProbe   Probe = ""
	ProbeTCP  Probe = "tcp"
	ProbeHTTP Probe = "http"
	ProbeUDP  Probe = "udp"
	ProbeSCTP Probe = "sctp"

	Masked      ClientAddress = "masked"
	Transparent ClientAddress = "transparent"
	ProxyV1     ClientAddress = "proxy-v1"
	ProxyV2     ClientAddress = "proxy-v2"

	Keep  RemovedPolicy = "keep"
	Drain RemovedPolicy = "drain"
	Reset RemovedPolicy = "reset"

	OffloadAuto   OffloadMode = "auto"
	OffloadNever  OffloadMode = "never"
	OffloadAlways OffloadMode = "always"

	OffloadPathAuto      OffloadPath = "auto"
	OffloadPathBPF       OffloadPath = "bpf"
	OffloadPathFlowtable OffloadPath = "flowtable"

	ChooseAuto   SteerChoose = "auto"
	ChooseTicket SteerChoose = "ticket"
	ChooseTable  SteerChoose = "table"
	ChoosePacket SteerChoose = "packet"

	LastKnown    SteerAbsent = "lastKnown"
	RefuseAbsent SteerAbsent = "refuse"

	SCTPRelay  SCTPMode = "relay"
	SCTPKernel SCTPMode = "kernel"

	Strip  Multihoming = "strip"
	Front  Multihoming = "front"
	Paired Multihoming = "paired"
	Reject Multihoming = "reject"

	StateReady BackendState = ""
	StateDrain BackendState = "drain" // no new flows
	StateDown  BackendState = "down"  // as if it were not there

	Refuse NonePolicy = ""
	Drop   NonePolicy = "drop"
)

// Algorithms, AffinityBys, … list the words a user may write, in the order of
// the documentation.
var (
	Algorithms      = []Algorithm{RoundRobin, LeastConnections, Random, SourceHash, Maglev}
	AffinityBys     = []AffinityBy{ByClientIP}
	Probes          = []Probe{ProbeTCP, ProbeHTTP, ProbeUDP, ProbeSCTP}
	ClientAddresses = []ClientAddress{Masked, Transparent, ProxyV1, ProxyV2}
	RemovedPolicies = []RemovedPolicy{Keep, Drain, Reset}
	OffloadModes    = []OffloadMode{OffloadAuto, OffloadNever, OffloadAlways}
	OffloadPaths    = []OffloadPath{OffloadPathAuto, OffloadPathBPF, OffloadPathFlowtable}
	SteerChooses    = []SteerChoose{ChooseAuto, ChooseTicket, ChooseTable, ChoosePacket}
	SteerAbsents    = []SteerAbsent{LastKnown, RefuseAbsent}
	SCTPModes       = []SCTPMode{SCTPRelay, SCTPKernel}
	Multihomings    = []Multihoming{Strip, Front, Paired, Reject}
)

func (s BackendState) String() string {
	if s == StateReady {
		return "ready"
	}
	return string(s)
}

// MarshalText writes "ready" for the zero value.
func (s BackendState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
