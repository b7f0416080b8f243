package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/baton-lb/baton/internal/testnet"
)

// wire is what passes one end of a link of how connections begin and end.
type wire struct {
	*testnet.Capture
	port testnet.Port
}

// segment is a TCP segment with SYN, FIN or RST, or an ICMP error.
type segment struct {
	out      bool  // sent by the host that the port belongs to
	hops     uint8 // that it may still take
	from, to netip.AddrPort
	tcp      *layers.TCP // nil: an ICMP message
	icmp     string
}

func (s segment) String() string {
	dir := "in"
	if s.out {
		dir = "out"
	}
	if s.tcp == nil {
		return fmt.Sprintf("%s %s > %s: %s", dir, s.from.Addr(), s.to.Addr(), s.icmp)
	}
	var flags []string
	for name, set := range map[string]bool{"SYN": s.tcp.SYN, "FIN": s.tcp.FIN, "RST": s.tcp.RST, "ACK": s.tcp.ACK} {
		if set {
			flags = append(flags, name)
		}
	}
	return fmt.Sprintf("%s %s > %s: %s seq %d ack %d, %d bytes", dir, s.from, s.to, strings.Join(flags, " "), s.tcp.Seq, s.tcp.Ack, len(s.tcp.Payload))
}

func (w world) wire(t *testing.T, p testnet.Port) wire {
	t.Helper()
	return wire{p.Capture(), p}
}

// segments are those so far.
func (w wire) segments(t *testing.T) []segment {
	t.Helper()
	var all []segment
	for _, f := range w.Settled(20 * time.Millisecond) {
		s, err := parseSegment(f)
		if err != nil {
			t.Fatalf("at %s: %v", w.port.Host.Name(), err)
		}
		all = append(all, s)
	}
	return all
}

func parseSegment(f testnet.Frame) (segment, error) {
	s := segment{out: f.Out}
	p := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.DecodeOptions{NoCopy: true})
	var from, to netip.Addr
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		s.hops = ip.TTL
		from, _ = netip.AddrFromSlice(ip.SrcIP.To4())
		to, _ = netip.AddrFromSlice(ip.DstIP.To4())
	case *layers.IPv6:
		s.hops = ip.HopLimit
		from, _ = netip.AddrFromSlice(ip.SrcIP)
		to, _ = netip.AddrFromSlice(ip.DstIP)
	default:
		return s, fmt.Errorf("not a packet of IP: %v", p)
	}
	s.from, s.to = netip.AddrPortFrom(from, 0), netip.AddrPortFrom(to, 0)
	if l, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP); ok {
		s.tcp = l
		s.from, s.to = netip.AddrPortFrom(from, uint16(l.SrcPort)), netip.AddrPortFrom(to, uint16(l.DstPort))
	}
	if l, ok := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); ok {
		s.icmp = l.TypeCode.String()
	}
	if l, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok {
		s.icmp = l.TypeCode.String()
	}
	return s, nil
}

// noReset checks that nobody has reset anything, but for a peer that is told once more
// that its end has come, where it was slow to believe it, and knows nothing of the
// connection any more.
func (w wire) noReset(t *testing.T) {
	t.Helper()
	type connection struct{ here, there netip.AddrPort }
	closed := map[connection][2]bool{} // by whom: us, them
	for _, s := range w.segments(t) {
		if s.tcp == nil {
			continue
		}
		c, who := connection{s.to, s.from}, 1
		if s.out {
			c, who = connection{s.from, s.to}, 0
		}
		by := closed[c]
		by[who] = by[who] || s.tcp.FIN
		closed[c] = by
		if s.tcp.RST && !(s.ofPeer() && !s.tcp.ACK && by == [2]bool{true, true}) {
			t.Errorf("at %s: %s", w.port.Host.Name(), s)
		}
	}
}

// ofPeer reports whether a peer has made the segment and not the balancer, between
// hosts that begin with as many hops as Linux does.
func (s segment) ofPeer() bool { return s.out || s.hops == 63 }

// noEnd checks that nothing has ended: no FIN, no reset.
func (w wire) noEnd(t *testing.T) {
	t.Helper()
	for _, s := range w.segments(t) {
		if s.tcp != nil && (s.tcp.RST || s.tcp.FIN) {
			t.Errorf("at %s: %s", w.port.Host.Name(), s)
		}
	}
}

// ends counts the connections that have sent and received a FIN.
func (w wire) ends(t *testing.T) (sent, received int) {
	t.Helper()
	type tuple struct{ from, to netip.AddrPort }
	seen := map[tuple]bool{}
	for _, s := range w.segments(t) {
		if s.tcp == nil || !s.tcp.FIN || seen[tuple{s.from, s.to}] {
			continue
		}
		seen[tuple{s.from, s.to}] = true
		if s.out {
			sent++
		} else {
			received++
		}
	}
	return sent, received
}

// tooBig counts the "fragmentation needed" and "packet too big" messages that have
// come in.
func (w wire) tooBig(t *testing.T) (n int) {
	t.Helper()
	for _, s := range w.segments(t) {
		if !s.out && (strings.Contains(s.icmp, "FragmentationNeeded") || strings.Contains(s.icmp, "PacketTooBig")) {
			n++
		}
	}
	return n
}

// counter is a number of /proc/net of a host, from two lines that begin alike: names,
// and values below them.
func counter(t *testing.T, h *testnet.Host, file, line, name string) string {
	t.Helper()
	var text []byte
	var err error
	h.Do(func() { text, err = os.ReadFile("/proc/thread-self/net/" + file) })
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for l := range strings.Lines(string(text)) {
		f := strings.Fields(l)
		if len(f) == 0 || f[0] != line {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i := range min(len(f), len(names)) {
			if names[i] == name {
				return f[i]
			}
		}
	}
	t.Fatalf("host %s has no %s %s in %s", h.Name(), line, name, file)
	return ""
}
