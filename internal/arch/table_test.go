package arch

// A row is a package of ours and what it may import of ours. Patterns are paths
// below the module: "lb/store" is one package, "lb/relay/..." that and all below,
// "..." everything.
type row struct {
	path string
	may  []string
	not  []string // exceptions to may

	tests []string // what its test files may import beyond may and everyTest
	pure  bool     // no I/O: see impure
}

// table holds one row a package. Reasons for packages beyond the first design
// stand in docs/decisions.
var table = []row{
	{path: "cmd/baton", may: []string{"..."}},

	{path: "internal/flow"},
	{path: "lb", may: []string{"internal/flow"}, pure: true},
	{path: "lb/sched", may: []string{"lb", "internal/flow"}, pure: true},
	{path: "lb/store", may: []string{"lb", "lb/sched", "internal/flow"}},
	{path: "lb/pick", may: []string{"lb", "lb/sched", "lb/store", "affinity", "internal/flow"}, pure: true},
	{path: "lb/handoff", may: []string{"lb", "internal/flow"}, pure: true},
	{path: "lb/steer", may: []string{"lb", "lb/sched", "lb/store", "lb/pick", "lb/steer/...", "affinity", "internal/clock", "internal/flow"}},
	{path: "lb/steer/program", may: []string{"lb", "internal/flow"}, pure: true},
	{path: "lb/relay", may: []string{"lb", "lb/sched", "lb/store", "lb/pick", "lb/handoff", "lb/relay/...", "affinity", "internal/flow"}},
	{path: "lb/relay/poll"},
	{path: "lb/relay/pump", may: []string{"internal/flow"}},
	{path: "lb/relay/capture", may: []string{"lb", "internal/dump", "internal/flow", "internal/sysctl"}},
	{path: "lb/relay/proxyproto"},
	{path: "lb/relay/datagram"},
	{path: "lb/health", may: []string{"lb", "lb/store", "sctp/wire", "internal/flow"}},
	{path: "lb/source/file", may: []string{"lb", "lb/store", "internal/flow"}},
	{path: "lb/source/kube", may: []string{"lb", "lb/store", "lb/source/file", "internal/flow"}, tests: []string{"lb/sched"}},

	{path: "affinity", may: []string{"internal/flow"}, pure: true},

	{path: "conntrack", may: []string{"internal/flow"}},
	{path: "conntrack/stale", may: []string{"internal/flow"}, pure: true},

	{
		path: "offload", may: []string{"lb", "lb/handoff", "conntrack", "offload/bpf", "internal/clock", "internal/flow", "internal/sysctl"},
		tests: []string{"offload/offloadtest"},
	},
	{path: "offload/offloadtest", may: []string{"offload", "offload/bpf", "internal/flow"}},
	{path: "offload/bpf", may: []string{"lb", "lb/steer/program", "conntrack", "internal/clock", "internal/dump", "internal/flow", "internal/sysctl"}},
	{path: "offload/transparent", may: []string{"offload/bpf", "lb", "internal/dump", "internal/flow"}},
	{path: "offload/nat", may: []string{"lb", "conntrack", "internal/flow"}},

	{path: "sctp", may: []string{"sctp/wire", "lb", "lb/store", "lb/pick", "affinity", "internal/flow"}},
	{path: "sctp/wire", pure: true},

	{path: "internal/admin", may: []string{"..."}, not: []string{"cmd/...", "offload/bpf", "lb/source/..."}},
	{path: "internal/admin/client", may: []string{"internal/admin", "internal/flow"}},
	{path: "internal/admin/doctor", may: []string{"internal/admin", "internal/flow", "lb", "lb/relay/capture"}},
	{path: "internal/arch"},
	{path: "internal/cache"},
	{path: "internal/clock"},
	{path: "internal/dump"},
	{path: "internal/e2e", tests: []string{"internal/admin", "internal/admin/client", "internal/testkube"}}, // to speak as another process does
	{path: "internal/sysctl"},
	{path: "internal/testkube", may: []string{"internal/cache", "internal/testnet"}},
	{path: "internal/testkube/build", may: []string{"internal/testkube"}},
	{path: "internal/testkube/control"},
	{path: "internal/testnet"},
	{path: "internal/testvm", may: []string{"internal/cache", "internal/testvm/wire"}},
	{path: "internal/testvm/guest", may: []string{"internal/testvm/wire"}},
	{path: "internal/testvm/suite", may: []string{"internal/testvm"}},
	{path: "internal/testvm/vmrun", may: []string{"internal/testvm"}},
	{path: "internal/testvm/vmtest", may: []string{"internal/testvm/suite"}},
	{path: "internal/testvm/wire"},

	{path: "deploy", tests: []string{"lb/source/...", "lb/store", "internal/admin"}},
	{path: "deploy/container"},
	{path: "perf", may: []string{"perf/..."}},
	{path: "perf/load"},
	{path: "perf/proc"},
	{path: "perf/topology", may: []string{"internal/flow", "internal/testnet"}},
	{path: "perf/mode", may: []string{"perf/topology", "perf/proc", "internal/admin/client", "internal/flow", "internal/testnet"}},
	{path: "perf/workload", may: []string{"perf/load", "perf/topology", "perf/proc", "perf/report", "internal/flow"}},
	{path: "perf/report", may: []string{"perf/proc"}},
	{path: "perf/suite", may: []string{"perf/...", "internal/flow"}, not: []string{"perf"}},
}

// everyTest is what any test file may import: hosts to run on, and the vocabulary
// that fixtures are written in.
var everyTest = []string{"internal/testnet", "internal/flow", "lb"}

// An example shows another program's use of a package. It may wire every package
// that such a program can import, and no other.
var exampleMay, exampleNot = []string{"..."}, []string{"cmd/...", "internal/..."}

// A ban holds for every file of from, tests included (examples are another
// program's), whatever the table says.
type ban struct {
	from []string
	to   []string
	why  string
}

var bans = []ban{
	{
		from: []string{"lb/...", "sctp/..."},
		to:   []string{"offload/...", "conntrack/..."},
		why:  "the data path declares the interfaces it needs; offload satisfies them",
	},
}

// A library has a home; any other file may not import it.
type library struct {
	prefix string   // of the import path
	home   []string // patterns; none with tests set means tests only
	tests  bool     // test files may, anywhere
	files  bool     // so may files and packages named for collectors
	why    string
}

var libraries = []library{
	{prefix: "k8s.io/", home: []string{"lb/source/kube", "internal/testkube/...", "deploy"}, why: "nobody pays for Kubernetes who does not use it"},
	{prefix: "sigs.k8s.io/", home: []string{"lb/source/kube", "internal/testkube/...", "deploy"}, why: "nobody pays for Kubernetes who does not use it"},
	{prefix: "github.com/prometheus/", home: []string{"internal/admin"}, tests: true, files: true,
		why: "packages count in their own terms; collectors translate"},
	{prefix: "github.com/spf13/", home: []string{"cmd/...", "internal/testkube/control"}, why: "flags are the command's, options are structs"},
	{prefix: "go.uber.org/goleak", tests: true, why: "it is for tests"},
	{prefix: "github.com/pires/go-proxyproto", tests: true, why: "it is the oracle of our own codec"},
	{prefix: "github.com/gopacket/", home: []string{"lb/relay/datagram"}, tests: true,
		why: "it is the oracle of programs that change packets; of ours one writes a packet, seldom"},
	{prefix: "testing", home: []string{"perf/..."}, tests: true, why: "it is for tests"},
	{prefix: "log", why: "loggers are log/slog and handed in"},
}

// testnetHome is who may use namespace hosts outside of tests: the demonstration
// and the performance suite.
var testnetHome = []string{"cmd/...", "perf/...", "internal/testkube"}

// impure are the packages that a pure one must not import: clocks and addresses
// are handed in, and nothing is read or written.
var impure = []string{"os", "os/exec", "net", "net/http", "syscall", "golang.org/x/sys/unix", "github.com/vishvananda/netlink"}

// topLevel are the directories of the repository that are not hidden.
var topLevel = []string{"affinity", "cmd", "conntrack", "deploy", "docs", "internal", "lb", "offload", "perf", "sctp"}
