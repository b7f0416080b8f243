package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/baton-lb/baton/internal/testnet"
)

// budgets holds every program and the number of instructions that it may have: what each packet may cost at most, and far
// from what a verifier accepts. Raise one with a reason.
var budgets = map[string]int{
	guardProgGuard:   240, // sources are looked up at most once, wildcard frontends where no VIP is
	divertProgDivert: 700,

	flowProgFlowIngress: 9500, // it has the tracking twice: for the gate and for what goes on; and mode steer
	flowProgFlowEgress:  1000,
	flowProgFlowXdp:     1600,

	flowProgSteerRefill: 200,
	flowProgSteerFlush:  200,
	flowProgSteerEnd:    400,
	flowProgSteerReset:  400,
}

// programs lists what is embedded.
func programs(t *testing.T) map[string]*ebpf.ProgramSpec {
	t.Helper()
	all := make(map[string]*ebpf.ProgramSpec)
	for _, load := range []func() (*ebpf.CollectionSpec, error){loadGuard, loadDivert, loadFlow} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for name, p := range spec.Programs {
			all[name] = p
		}
	}
	return all
}

func TestProgramsStayInTheirBudgets(t *testing.T) {
	for name, p := range programs(t) {
		n := int(p.Instructions.Size() / asm.InstructionSize)
		switch budget, ok := budgets[name]; {
		case !ok:
			t.Errorf("program %s has no budget", name)
		case n > budget:
			t.Errorf("program %s has %d instructions, its budget is %d", name, n, budget)
		default:
			t.Logf("program %s: %d instructions of %d", name, n, budget)
		}
	}
}

// TestComplexity logs what the verifier of this kernel has to look at.
func TestComplexity(t *testing.T) {
	testnet.RequireRoot(t)
	guard := newGuard(t, GuardOptions{})
	flows := newFlows(t, testnet.New(t).Host("balancer"), FlowsOptions{Capacity: 1, XDP: true}).programs
	for name, p := range map[string]*ebpf.Program{
		guardProgGuard: guard.objects.Guard, flowProgFlowIngress: flows.Ingress, flowProgFlowEgress: flows.Egress, flowProgFlowXdp: flows.XDP,
	} {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := info.VerifiedInstructions(); ok {
			t.Logf("program %s: the verifier looked at %d instructions", name, n)
		}
	}
}

// TestLicence: whoever takes the sources may choose, and the kernel gives such programs every helper.
func TestLicence(t *testing.T) {
	for name, p := range programs(t) {
		if p.License != "Dual BSD/GPL" {
			t.Errorf("program %s says %q", name, p.License)
		}
	}
}
