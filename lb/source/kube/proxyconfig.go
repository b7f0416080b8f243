package kube

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// ProxyConfig is what a KubeProxyConfiguration, the file of kube-proxy, says that
// means something here.
type ProxyConfig struct {
	File string

	Client           ClientConfig
	HostnameOverride string
	BindAddress      netip.Addr // the node's primary address; the zero value is the Node's own
	MetricsAddress   string     // "" = not said
	HealthAddress    string     // "" = not said
	NodePorts        NodePortAddresses
	ClusterCIDRs     []netip.Prefix
	CloseWaitTimeout *time.Duration // of conntrack; nil = not said
	OOMScoreAdj      *int           // nil = not said
}

// NodePortAddresses says at which of the host's addresses node ports are served.
// The zero value is all.
type NodePortAddresses struct {
	Prefixes []netip.Prefix
	Primary  bool // those of the Node's primary addresses too
}

// ConfigFault is one thing that is wrong with a KubeProxyConfiguration.
type ConfigFault struct {
	File    string
	Line    int
	Field   string // "" = the document
	Problem string
}

func (f *ConfigFault) Error() string { return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text()) }

// Text says what is wrong, without where.
func (f *ConfigFault) Text() string {
	if f.Field == "" {
		return f.Problem
	}
	return f.Field + ": " + f.Problem
}

// LoadProxyConfig reads a KubeProxyConfiguration. The error joins a *ConfigFault for
// everything that is wrong with it. What is unset (null, zero or empty, as kubeadm
// writes all that nobody has decided) is as if it were not there.
func LoadProxyConfig(path string) (*ProxyConfig, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return parseProxyConfig(path, text)
}

func parseProxyConfig(path string, text []byte) (*ProxyConfig, error) {
	p := proxyParser{config: &ProxyConfig{File: path}}
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: not YAML: %w", path, err)
		}
		p.document(&doc)
	}
	if !p.found && len(p.faults) == 0 {
		p.fault(&yaml.Node{Line: 1}, "", "there is no KubeProxyConfiguration in it: with --kubernetes, --config names a file of kube-proxy's")
	}
	return p.config, errors.Join(p.faults...)
}

// proxyParser reads the documents of one file.
type proxyParser struct {
	config *ProxyConfig
	found  bool
	faults []error
}

func (p *proxyParser) fault(at *yaml.Node, field, format string, args ...any) {
	p.faults = append(p.faults, &ConfigFault{p.config.File, at.Line, field, fmt.Sprintf(format, args...)})
}

func (p *proxyParser) document(doc *yaml.Node) {
	if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		p.fault(root, "", "is no KubeProxyConfiguration")
		return
	}
	kind, version := scalarOf(root, "kind"), scalarOf(root, "apiVersion")
	switch {
	case kind != "KubeProxyConfiguration":
		p.fault(root, "", "kind %q is not KubeProxyConfiguration", kind)
	case version != "kubeproxy.config.k8s.io/v1alpha1":
		p.fault(root, "apiVersion", "%q is unknown: use kubeproxy.config.k8s.io/v1alpha1", version)
	case p.found:
		p.fault(root, "", "there is a KubeProxyConfiguration before this one")
	default:
		p.found = true
		p.mapping(root, "")
	}
}

// mapping reads the fields of one object, each by its path.
func (p *proxyParser) mapping(at *yaml.Node, path string) {
	for i := 0; i+1 < len(at.Content); i += 2 {
		key, value := at.Content[i], at.Content[i+1]
		field := path + key.Value
		f := proxyFields[field]
		switch {
		case value.Kind == yaml.MappingNode && readBelow(field):
			p.mapping(value, field+".")
		case value.Tag == "!!null", isUnset(value) && !f.zeroCounts:
		case f.read != nil:
			if problem := f.read(p.config, value); problem != "" {
				p.fault(key, field, "%s", problem)
			}
		default:
			p.fault(key, field, "%s", refusalOf(field))
		}
	}
}

// isUnset reports whether a value is one that nobody has decided about.
func isUnset(v *yaml.Node) bool {
	switch v.Kind {
	case yaml.MappingNode:
		for i := 1; i < len(v.Content); i += 2 {
			if !isUnset(v.Content[i]) {
				return false
			}
		}
		return true
	case yaml.SequenceNode:
		return len(v.Content) == 0
	}
	switch v.Value {
	case "", "0", "0s", "0.0", "0m0s", "false", "null", "~":
		return true
	}
	return false
}

func scalarOf(m *yaml.Node, key string) string {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return m.Content[i+1].Value
		}
	}
	return ""
}

// readBelow reports whether any field of an object is read.
func readBelow(object string) bool {
	for field := range proxyFields {
		if strings.HasPrefix(field, object+".") {
			return true
		}
	}
	return false
}

// refusalOf says why a field is refused, and what to do.
func refusalOf(field string) string {
	for _, r := range proxyRefusals {
		if field == r.field || strings.HasPrefix(field, r.field+".") {
			return r.why
		}
	}
	return "is unknown here: leave it out"
}

// parsePrefixes reads a list of CIDRs with commas between them.
func parsePrefixes(text string) (list []netip.Prefix, err error) {
	for s := range strings.SplitSeq(text, ",") {
		prefix, err := parsePrefix(s)
		if err != nil {
			return nil, err
		}
		list = append(list, prefix)
	}
	return list, nil
}

// ParseClusterCIDRs reads one CIDR of all pods, or one for each family with a comma
// between them.
func ParseClusterCIDRs(text string) ([]netip.Prefix, error) { return parsePrefixes(text) }

// ParseNodePortAddresses reads CIDRs and kube-proxy's words: primary, localhost, all.
func ParseNodePortAddresses(words []string) (n NodePortAddresses, err error) {
	for _, word := range words {
		switch word = strings.TrimSpace(word); word {
		case "primary":
			n.Primary = true
		case "localhost":
			n.Prefixes = append(n.Prefixes, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
		case "all":
			n.Prefixes = append(n.Prefixes, netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))
		default:
			prefix, err := parsePrefix(word)
			if err != nil {
				return NodePortAddresses{}, fmt.Errorf("%w; nor is it primary, localhost or all", err)
			}
			n.Prefixes = append(n.Prefixes, prefix)
		}
	}
	return n, nil
}

// on returns the prefixes for a node. What is primary is the first address of each
// family, or bind in its family. Of a node that is not known yet (nil) it is the
// loopback one: no prefix at all would be every address.
func (n NodePortAddresses) on(node *Node, bind netip.Addr) []netip.Prefix {
	prefixes := n.Prefixes
	if !n.Primary {
		return prefixes
	}
	for _, v4 := range []bool{true, false} {
		var primary netip.Addr
		if bind.IsValid() && !bind.IsUnspecified() && bind.Is4() == v4 {
			primary = bind
		}
		if node == nil && !primary.IsValid() {
			primary = loopback(v4)
		}
		for i := 0; node != nil && i < len(node.Addresses) && !primary.IsValid(); i++ {
			if a := node.Addresses[i]; a.Is4() == v4 {
				primary = a
			}
		}
		if primary.IsValid() {
			prefixes = append(prefixes[:len(prefixes):len(prefixes)], netip.PrefixFrom(primary, primary.BitLen()))
		}
	}
	return prefixes
}

func loopback(v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// withPort adds a port to an address that has none.
func withPort(address, port string) string {
	if a, err := netip.ParseAddr(strings.Trim(address, "[]")); err == nil {
		return net.JoinHostPort(a.String(), port)
	}
	return address
}
