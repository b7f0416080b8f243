package bpf

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

// The two families have maps of their own, so that an element of IPv4 is small. In Go tuples and elements have the shape
// of IPv6's; these are the places where it matters.

func (t flowTuple) is4() bool { return addrPort(t.Source, 0).Addr().Is4() }

// four is the key of a tuple of IPv4.
func (t flowTuple) four() flowTuple4 {
	return flowTuple4{
		Source: t.Source.Words[3], SourcePort: t.SourcePort, Destination: t.Destination.Words[3], DestinationPort: t.DestinationPort,
		Protocol: t.Protocol,
	}
}

func (t flowTuple4) six() flowTuple {
	return flowTuple{
		Source: mapped(t.Source), SourcePort: t.SourcePort, Destination: mapped(t.Destination), DestinationPort: t.DestinationPort,
		Protocol: t.Protocol,
	}
}

func (e flowElement6) four() flowElement4 {
	return flowElement4{
		Source: e.Source.Words[3], SourcePort: e.SourcePort, Destination: e.Destination.Words[3], DestinationPort: e.DestinationPort,
		Whose: e.Whose, Life: e.Life,
	}
}

func (e flowElement4) six() flowElement6 {
	return flowElement6{
		Source: mapped(e.Source), SourcePort: e.SourcePort, Destination: mapped(e.Destination), DestinationPort: e.DestinationPort,
		Whose: e.Whose, Life: e.Life,
	}
}

// mapped is an address of IPv4 as the program writes it beside those of IPv6.
func mapped(a uint32) flowAddress {
	m := flowAddress(addressKey(netip.IPv4Unspecified()))
	m.Words[3] = a
	return m
}

// addElement puts one in whose tuple is nobody's.
func (f *Flows) addElement(t flowTuple, e flowElement6) error {
	if t.is4() {
		return f.maps.Flows4.Update(t.four(), e.four(), ebpf.UpdateNoExist)
	}
	return f.maps.Flows6.Update(t, e, ebpf.UpdateNoExist)
}

func (f *Flows) forgetElement(t flowTuple) error {
	if t.is4() {
		return forget(f.maps.Flows4, t.four())
	}
	return forget(f.maps.Flows6, t)
}

func (f *Flows) element(t flowTuple) (e flowElement6, err error) {
	if t.is4() {
		var e4 flowElement4
		err = f.maps.Flows4.Lookup(t.four(), &e4)
		return e4.six(), err
	}
	err = f.maps.Flows6.Lookup(t, &e)
	return e, err
}

// batchSize is how many elements are read at once.
const batchSize = 1024

// eachElement calls each for the elements of both families that are wanted, until it returns false. Flows may come and go meanwhile.
func (f *Flows) eachElement(want func(*flowWhose, *flowLife) bool, each func(flowTuple, flowElement6) bool) error {
	more := true
	err := inBatches(f.maps.Flows4, func(t *flowTuple4, e *flowElement4) bool {
		if want(&e.Whose, &e.Life) {
			more = each(t.six(), e.six())
		}
		return more
	})
	if err == nil && more {
		err = inBatches(f.maps.Flows6, func(t *flowTuple, e *flowElement6) bool { return !want(&e.Whose, &e.Life) || each(*t, *e) })
	}
	if err != nil {
		return fmt.Errorf("read flows: %w", err)
	}
	return nil
}

// inBatches calls each for the entries of a hash table, until it returns false.
func inBatches[K, V any](m *ebpf.Map, each func(*K, *V) bool) error {
	var (
		cursor ebpf.MapBatchCursor
		keys   = make([]K, batchSize)
		values = make([]V, batchSize)
	)
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			if !each(&keys[i], &values[i]) {
				return nil
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// anyElement wants all.
func anyElement(*flowWhose, *flowLife) bool { return true }

// steered reports whether the program has made the flow by itself.
func (e flowElement6) steered() bool { return e.Whose.Steered != 0 }

// born is when.
func (e flowElement6) born() uint64 { return uint64(e.Life.Born)<<32 | uint64(e.Whose.Generation) }
