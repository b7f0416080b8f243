package bpf

import "context"

// Attach puts the programs on a device, before whatever others have there.
func (f *Flows) Attach(ifindex int) error { return f.devices.attach(ifindex) }

// Detach takes them off.
func (f *Flows) Detach(ifindex int) error { return f.devices.detach(ifindex) }

// Follow keeps the programs on every device that can have them, as they come and go, until ctx is done.
func (f *Flows) Follow(ctx context.Context) error { return f.devices.follow(ctx) }

// Devices says where the programs are, and where not and why.
func (f *Flows) Devices() []Device { return f.devices.status() }
