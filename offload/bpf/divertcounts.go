package bpf

import "fmt"

// DivertCounts is what has been diverted.
type DivertCounts struct {
	Packets   uint64 // for sockets
	Errors    uint64 // ICMP errors about what sockets have sent
	Fragments uint64 // for sockets too, but the first of each packet
	Frames    uint64 // taken out of bridging
}

// Counts reads what has been diverted since OpenDivert.
func (d *Divert) Counts() (c DivertCounts, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return c, ErrClosed
	}
	for at, n := range map[divertDiverted]*uint64{
		divertDivertedDIVERTED_PACKET: &c.Packets, divertDivertedDIVERTED_ERROR: &c.Errors,
		divertDivertedDIVERTED_FRAGMENT: &c.Fragments, divertDivertedDIVERTED_FRAME: &c.Frames,
	} {
		var perCPU []uint64
		if err := d.objects.DivertCounts.Lookup(at, &perCPU); err != nil {
			return c, fmt.Errorf("read counts of divert: %w", err)
		}
		for _, v := range perCPU {
			*n += v
		}
	}
	return c, nil
}
