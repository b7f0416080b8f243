package bpf

import "fmt"

// FlowCount is what became of packets.
type FlowCount uint32

// The counts. What goes to the stack from a watched flow is not counted.
const (
	FlowsForwarded  = FlowCount(flowFlowCountFLOW_COUNT_FORWARDED)  // on to the other side; as on the wire
	FlowsFast       = FlowCount(flowFlowCountFLOW_COUNT_FAST)       // of those, in XDP
	FlowsHeld       = FlowCount(flowFlowCountFLOW_COUNT_HELD)       // dropped while the gate held
	FlowsParked     = FlowCount(flowFlowCountFLOW_COUNT_PARKED)     // put aside while the gate held
	FlowsReset      = FlowCount(flowFlowCountFLOW_COUNT_RESET)      // answered with a reset
	FlowsTooBig     = FlowCount(flowFlowCountFLOW_COUNT_TOO_BIG)    // did not fit the way out; the sender was told
	FlowsExpired    = FlowCount(flowFlowCountFLOW_COUNT_EXPIRED)    // at the end of their time to live; the sender was told
	FlowsUntold     = FlowCount(flowFlowCountFLOW_COUNT_UNTOLD)     // of those two, the sender was not told: too many, or it could not be
	FlowsTranslated = FlowCount(flowFlowCountFLOW_COUNT_TRANSLATED) // ICMP errors, passed on to the sender of what they are about
	FlowsMirrored   = FlowCount(flowFlowCountFLOW_COUNT_MIRRORED)   // SYNs of ours that options were taken from
	FlowsOwn        = FlowCount(flowFlowCountFLOW_COUNT_OWN)        // what our own stack sent on a forwarded flow; dropped
	FlowsNoWay      = FlowCount(flowFlowCountFLOW_COUNT_NO_WAY)     // there is no way out; dropped
	FlowsOdd        = FlowCount(flowFlowCountFLOW_COUNT_ODD)        // TCP in fragments or with IP options on a forwarded flow; dropped
	FlowsFailed     = FlowCount(flowFlowCountFLOW_COUNT_FAILED)     // the kernel refused a step; dropped
	FlowsStale      = FlowCount(flowFlowCountFLOW_COUNT_STALE)      // SYNs at flows that are over
)

var flowCountNames = [flowFlowCountFLOW_COUNTS]string{
	FlowsForwarded: "forwarded", FlowsFast: "fast", FlowsHeld: "held", FlowsParked: "parked", FlowsReset: "reset", FlowsTooBig: "too-big",
	FlowsNoWay: "no-way", FlowsOdd: "odd", FlowsFailed: "failed", FlowsStale: "stale",
	FlowsExpired: "expired", FlowsUntold: "untold", FlowsTranslated: "translated", FlowsMirrored: "mirrored", FlowsOwn: "own",
}

func (c FlowCount) String() string {
	if int(c) < len(flowCountNames) {
		return flowCountNames[c]
	}
	return "unknown"
}

// Counts reads what the programs have counted since the maps were made.
func (f *Flows) Counts() (map[FlowCount]uint64, error) {
	counts := make(map[FlowCount]uint64, len(flowCountNames))
	for c := range flowFlowCountFLOW_COUNTS {
		var perCPU []uint64
		if err := f.maps.FlowCounts.Lookup(c, &perCPU); err != nil {
			return nil, fmt.Errorf("read counts of flows: %w", err)
		}
		var n uint64
		for _, v := range perCPU {
			n += v
		}
		counts[FlowCount(c)] = n
	}
	return counts, nil
}
