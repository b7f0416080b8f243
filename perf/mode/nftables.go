package mode

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/perf/topology"
)

// NFTables is the kernel's destination NAT: connections to the VIP go to the
// backends in turn, and conntrack keeps them there. Backends answer through the
// balancer, so sources are left as they are.
type NFTables struct{}

var _ Mode = NFTables{}

// Name implements Mode.
func (NFTables) Name() string { return "nftables" }

// Version implements Mode.
func (NFTables) Version(ctx context.Context) (string, error) {
	return versionOf(ctx, "nft", "nftables", "--version")
}

// Carries implements Mode.
func (NFTables) Carries(flow.Proto) bool { return true }

// Start implements Mode.
func (NFTables) Start(ctx context.Context, h *topology.Hosts) (Running, error) {
	nft, err := find("nft", "nftables")
	if err != nil {
		return nil, err
	}
	n := &nftables{routed{h}, nft}
	if out, err := n.run(ctx, n.rules(), "-f", "-"); err != nil {
		return nil, fmt.Errorf("load the rules: %w: %s", err, out)
	}
	return n, nil
}

type nftables struct {
	routed
	nft string
}

func (n *nftables) Target(s topology.Service, _ int) netip.AddrPort { return n.hosts.VIPAddr(s) }

// rules is the table that does it.
func (n *nftables) rules() string {
	family := "ip"
	if n.hosts.VIP.Is6() {
		family = "ip6"
	}
	var to []string
	for i, b := range n.hosts.BackendAt {
		to = append(to, fmt.Sprintf("%d : %s", i, b))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "table %s perf {\n\tcounter flows {}\n\tchain balance {\n", family)
	b.WriteString("\t\ttype nat hook prerouting priority dstnat;\n")
	for _, p := range []flow.Proto{flow.TCP, flow.UDP} {
		var ports []string
		for _, s := range topology.Of(p) {
			ports = append(ports, fmt.Sprint(s.Port))
		}
		fmt.Fprintf(&b, "\t\t%s daddr %s %s dport { %s } counter name flows dnat to numgen inc mod %d map { %s }\n",
			family, n.hosts.VIP, p, strings.Join(ports, ", "), len(to), strings.Join(to, ", "))
	}
	b.WriteString("\t}\n}\n")
	return b.String()
}

// Count implements Running. A chain of NAT sees the first packet of each flow.
func (n *nftables) Count(ctx context.Context) (Counts, error) {
	counts, err := n.countLink()
	if err != nil {
		return nil, err
	}
	out, err := n.run(ctx, "", "-j", "list", "counters")
	if err != nil {
		return nil, fmt.Errorf("read the rules' counter: %w: %s", err, out)
	}
	if counts[Flows], err = parseCounter(out); err != nil {
		return nil, err
	}
	return counts, nil
}

// parseCounter reads the packets of the counter from the JSON of nft(8).
func parseCounter(text []byte) (uint64, error) {
	var list struct {
		NFTables []struct {
			Counter *struct {
				Name    string
				Packets uint64
			}
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return 0, fmt.Errorf("read the rules' counter: %w", err)
	}
	for _, item := range list.NFTables {
		if item.Counter != nil && item.Counter.Name == "flows" {
			return item.Counter.Packets, nil
		}
	}
	return 0, fmt.Errorf("read the rules' counter: it is not in %q", text)
}

func (n *nftables) run(ctx context.Context, input string, args ...string) ([]byte, error) {
	cmd := n.hosts.Balancer.Command(ctx, n.nft, args...)
	cmd.Stdin = strings.NewReader(input)
	return cmd.CombinedOutput()
}

// Close implements Running. The rules go with the host.
func (n *nftables) Close() error { return nil }
