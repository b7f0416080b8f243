package bpf

import "time"

// Gate says what becomes of a flow's packets.
type Gate uint32

// The gates. A flow goes from GateWatch to GateForward by way of GateFreeze, and any may be taken back; GateStale is for
// good.
const (
	GateWatch   = Gate(flowGateGATE_WATCH)   // to the stack, and remembered
	GateDrain   = Gate(flowGateGATE_DRAIN)   // new data is held; acknowledgements and what was seen before still pass
	GateFreeze  = Gate(flowGateGATE_FREEZE)  // everything is held
	GateForward = Gate(flowGateGATE_FORWARD) // on to the other side
	GateReset   = Gate(flowGateGATE_RESET)   // answered with a reset, and our own stack may send nothing but resets
	GateStale   = Gate(flowGateGATE_STALE)   // to the stack, as if the flow were not there: a new one has begun with its addresses
)

func (g Gate) String() string {
	if names := [...]string{"watch", "drain", "freeze", "forward", "reset", "stale"}; int(g) < len(names) {
		return names[g]
	}
	return "unknown"
}

// Rewrite is what is added, modulo 2^32, to the numbers of one direction's packets.
type Rewrite struct {
	Seq   uint32
	Ack   uint32 // and to the edges of SACK blocks
	TSval uint32
	TSecr uint32 // not to an echo of 0, which stands for none

	// Shift of the window: left, or right when negative. What would be more than 65535 becomes that. A window that is not
	// zero never becomes zero: less than one unit of the new scale becomes one. So the sender may send a little more than
	// there is room for, which is dropped and sent again; of a zero that is never followed by an update nothing would ever
	// come again.
	Shift int8

	// Scale is the shift that the sender of this direction announces its windows with, between 0 and 14. It bounds what
	// the other side can be sending. 0 is taken as "not known".
	Scale uint8
}

// FlowState is a copy of what the program keeps for a flow. The words of it are read one by one while packets go on.
type FlowState struct {
	Gate       Gate
	AddedAt    time.Duration // CLOCK_MONOTONIC
	Directions [directions]DirectionState
}

// DirectionState is what the program knows of one direction: of the packets that arrive from the client (ToBackend), or
// from the backend (ToClient). Numbers are as they arrive.
type DirectionState struct {
	Rewrite Rewrite

	Enter, Leave uint32 // equal: no program is between reading the gate and writing down what follows from it

	HasEnd bool   // data or a FIN was let through;
	End    uint32 // the highest end of it

	HasAck bool   // an acknowledgement was seen;
	Ack    uint32 // the highest,
	Window uint16 // and what came with it, as on the wire

	HasTSval bool   // a timestamp was let through;
	TSval    uint32 // the last

	HasHeldTSval bool   // since the gate began to hold, a packet with a timestamp was held;
	HeldTSval    uint32 // the first

	Held      bool // since the gate began to hold, anything was held
	HeldReset bool // and among it a reset, with the number that the receiver expects as far as that is known
	Dirty     bool // something went to the stack that the numbers do not account for: a fragment
	FIN       bool // a FIN was seen
	FINAcked  bool // and the other side has it
	FINEnd    uint32
	Reset     bool // a reset was seen: when forwarding only one with the number that the receiver expects, before any that went to the stack
	Forwarded bool // a packet went on to the other side

	Packets uint64        // that went on to the other side, as on the wire
	Bytes   uint64        // payload that went on to the other side; of TCP each byte counts once
	At      time.Duration // CLOCK_MONOTONIC_COARSE, of the last packet to the stack or to the other side; 0 = none
}

// Over reports whether both directions are closed, or one side has reset.
func (s FlowState) Over() bool {
	a, b := &s.Directions[ToBackend], &s.Directions[ToClient]
	return a.Reset || b.Reset || a.FINAcked && b.FINAcked
}
