package bpf

import (
	"errors"
	"fmt"
)

// AttachAll brings every fit device of the namespace up to date, as Follow does, once. Devices that refuse do not keep the
// others; the error joins what they said.
func (f *Flows) AttachAll() error { return f.devices.sync() }

// Remove takes the programs off every device, ends all flows, unpins everything and closes f.
func (f *Flows) Remove() error {
	err := f.devices.remove()
	if err = errors.Join(err, f.Close()); f.dir != "" {
		_, unpinned := removePins(f.dir)
		err = errors.Join(err, unpinned)
	}
	if err != nil {
		return fmt.Errorf("remove flows: %w", err)
	}
	return nil
}
