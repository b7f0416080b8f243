package testnet

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Loss is a port that loses packets.
type Loss struct {
	port    Port
	dropped *ebpf.Map // indexed by direction
}

// The directions of a Loss, as they index its map.
const (
	lossOut = iota
	lossIn
	lossDirections
)

// Lose makes a port lose that many of a thousand TCP and UDP packets, at random, of
// those that leave and of those that arrive. Everything else passes: who looks for
// a neighbour finds it. A packet that the device is still to cut into segments is
// lost as a whole.
func (p Port) Lose(perThousand int) *Loss {
	p.Host.t.Helper()
	l, err := p.lose(perThousand)
	if err != nil {
		p.Host.t.Fatalf("host %s: lose packets at %s: %v", p.Host.name, p.Dev, err)
	}
	return l
}

// Dropped counts what was lost so far.
func (l *Loss) Dropped() (out, in uint64) {
	l.port.Host.t.Helper()
	var n [lossDirections]uint64
	for i := range n {
		if err := l.dropped.Lookup(uint32(i), &n[i]); err != nil {
			l.port.Host.t.Fatalf("host %s: count lost packets: %v", l.port.Host.name, err)
		}
	}
	return n[lossOut], n[lossIn]
}

// Stop ends the loss. The counts stay.
func (l *Loss) Stop() {
	h := l.port.Host
	h.t.Helper()
	link, err := h.nl.LinkByName(l.port.Dev)
	if err == nil {
		err = h.nl.QdiscDel(clsact(link))
	}
	if err != nil {
		h.t.Fatalf("host %s: stop losing packets at %s: %v", h.name, l.port.Dev, err)
	}
}

func (p Port) lose(perThousand int) (_ *Loss, err error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: lossDirections})
	if err != nil {
		return nil, fmt.Errorf("make a map: %w", err)
	}
	p.Host.t.Cleanup(func() { m.Close() })
	link, err := p.Host.nl.LinkByName(p.Dev)
	if err != nil {
		return nil, fmt.Errorf("find the device: %w", err)
	}
	if err := p.Host.nl.QdiscAdd(clsact(link)); err != nil {
		return nil, fmt.Errorf("add clsact: %w", err)
	}
	out := p.loseOneWay(link, m, lossOut, netlink.HANDLE_MIN_EGRESS, perThousand)
	in := p.loseOneWay(link, m, lossIn, netlink.HANDLE_MIN_INGRESS, perThousand)
	return &Loss{port: p, dropped: m}, errors.Join(out, in)
}

func clsact(link netlink.Link) netlink.Qdisc {
	return &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index,
			Handle:    netlink.MakeHandle(0xffff, 0),
			Parent:    netlink.HANDLE_CLSACT,
		},
		QdiscType: "clsact",
	}
}

func (p Port) loseOneWay(link netlink.Link, m *ebpf.Map, direction int32, hook uint32, perThousand int) error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: lossProgram(m.FD(), direction, int32(perThousand)),
	})
	if err != nil {
		return fmt.Errorf("load a program: %w", err)
	}
	defer prog.Close() // the filter keeps it
	filter := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: link.Attrs().Index, Parent: hook, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		Fd: prog.FD(), Name: "loss", DirectAction: true,
	}
	if err := p.Host.nl.FilterAdd(filter); err != nil {
		return fmt.Errorf("add a filter: %w", err)
	}
	return nil
}

// What a tc program says, and where it finds a packet's protocols (struct
// __sk_buff; RFC 791, 3.1; RFC 8200, 3) behind an Ethernet header.
const (
	actOK, actShot = 0, 2

	skbProtocol        = 16
	protocol4, header6 = ethernetHeader + 9, ethernetHeader + 6
)

// lossProgram throws the dice for TCP and UDP.
func lossProgram(counters int, direction, perThousand int32) asm.Instructions {
	wire := func(ethertype uint16) int32 { // as the packet has it
		return int32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, ethertype)))
	}
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1), // what LoadAbs reads from
		asm.LoadMem(asm.R7, asm.R1, skbProtocol, asm.Word),
		asm.JEq.Imm(asm.R7, wire(unix.ETH_P_IP), "ipv4"),
		asm.JEq.Imm(asm.R7, wire(unix.ETH_P_IPV6), "ipv6"),
		asm.Ja.Label("pass"),
		asm.LoadAbs(protocol4, asm.Byte).WithSymbol("ipv4"),
		asm.Ja.Label("protocol"),
		asm.LoadAbs(header6, asm.Byte).WithSymbol("ipv6"),
		asm.JEq.Imm(asm.R0, unix.IPPROTO_TCP, "dice").WithSymbol("protocol"),
		asm.JNE.Imm(asm.R0, unix.IPPROTO_UDP, "pass"),
		asm.FnGetPrandomU32.Call().WithSymbol("dice"),
		asm.Mod.Imm32(asm.R0, 1000),
		asm.JGE.Imm(asm.R0, perThousand, "pass"),
		asm.StoreImm(asm.RFP, -4, int64(direction), asm.Word),
		asm.LoadMapPtr(asm.R1, counters),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "drop"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, actShot).WithSymbol("drop"),
		asm.Return(),
		asm.Mov.Imm(asm.R0, actOK).WithSymbol("pass"),
		asm.Return(),
	}
}
