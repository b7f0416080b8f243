package bpf

import (
	"slices"
	"testing"

	"github.com/baton-lb/baton/internal/testnet"
)

// Of the table only that is mapped which flows are in, at their first and their next process.
func TestSlotsAreMappedWhereFlowsAre(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("balancer")
	_, dir := mountForTest(t, h)
	o := FlowsOptions{Dir: dir, Capacity: 5*chunkSlots + 7}
	mapped := func(f *Flows) (chunks []int) {
		for i, m := range f.memory.chunks {
			if m != nil {
				chunks = append(chunks, i)
			}
		}
		return chunks
	}
	f := newFlows(t, h, o)
	if got := mapped(f); len(got) > 0 {
		t.Errorf("of an empty table %v is mapped", got)
	}
	last := uint32(f.capacity)
	f.free = []uint32{last, 1, 3*chunkSlots - 1, 3 * chunkSlots}
	for i := range 4 {
		if _, err := f.Add(specFor(i), GateForward); err != nil {
			t.Fatal(err)
		}
	}
	want := []int{0, 2, 3, 5}
	if got := mapped(f); !slices.Equal(got, want) {
		t.Errorf("%v is mapped, want %v", got, want)
	}
	must(t, f.Close())
	f = newFlows(t, h, o)
	if got := mapped(f); !slices.Equal(got, want) {
		t.Errorf("by the next process %v is mapped, want %v", got, want)
	}
	for _, w := range f.All() {
		if w.Gate() != GateForward || w.at.Protocol != uint8(w.spec.Proto) {
			t.Errorf("slot %d is not that of its flow", w.slot)
		}
		must(t, w.Delete())
	}
	if len(f.spent) != 4 || !slices.Contains(f.spent, last) {
		t.Errorf("%v are given back", f.spent)
	}
}
