package offloadtest

import (
	"errors"
	"sync/atomic"

	"github.com/baton-lb/baton/offload"
	"github.com/baton-lb/baton/offload/bpf"
)

// ErrFault is what a Faulty kernel refuses with.
var ErrFault = errors.New("fault for a test")

// Faulty is a kernel of which every so many calls fail, whatever they are.
type Faulty struct {
	offload.Kernel
	every  int64
	calls  atomic.Int64
	faults atomic.Int64
}

// NewFaulty makes every so many calls to k fail: 1 = all.
func NewFaulty(k offload.Kernel, every int) *Faulty { return &Faulty{Kernel: k, every: int64(every)} }

// Faults is how many calls have failed.
func (k *Faulty) Faults() int { return int(k.faults.Load()) }

func (k *Faulty) fault() error {
	if k.calls.Add(1)%k.every == 0 {
		k.faults.Add(1)
		return ErrFault
	}
	return nil
}

// Add implements offload.Kernel.
func (k *Faulty) Add(s bpf.FlowSpec, g bpf.Gate) (offload.Flow, error) {
	if err := k.fault(); err != nil {
		return nil, err
	}
	return k.Kernel.Add(s, g)
}

// Unpark implements offload.Kernel.
func (k *Faulty) Unpark(f offload.Flow) (int, error) {
	if err := k.fault(); err != nil {
		return 0, err
	}
	return k.Kernel.Unpark(f)
}

// Grace implements offload.Kernel.
func (k *Faulty) Grace() error {
	if err := k.fault(); err != nil {
		return err
	}
	return k.Kernel.Grace()
}
