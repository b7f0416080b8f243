package bpf

// AttachAll brings every fit device of the namespace up to date, as Follow does, once. Devices that refuse do not keep the
// others; the error joins what they said.
func (f *Flows) AttachAll() error { return f.devices.sync() }
