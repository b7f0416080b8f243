package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/admin/doctor"
	"github.com/baton-lb/baton/offload/bpf"
	"github.com/baton-lb/baton/offload/transparent"
)

// handoffForDoctor is what carries flows in the kernel, in the words of the doctor.
func handoffForDoctor() *doctor.Handoff {
	return &doctor.Handoff{Try: bpf.TryFlows, Devices: surveyDevices}
}

func surveyDevices() ([]doctor.Device, error) {
	found, err := bpf.SurveyDevices()
	if err != nil {
		return nil, err
	}
	var all []doctor.Device
	for _, d := range found {
		all = append(all, doctor.Device{Device: d.Name, How: d.How, XDP: d.XDP, Why: d.Why})
	}
	return all, nil
}

// tryTransparent keeps clients' addresses where the calling thread is, and takes that
// away again.
func tryTransparent() doctor.Finding {
	t, err := transparent.Open(transparent.Options{Peers: 1})
	if err == nil {
		err = t.Close()
	}
	switch {
	case err == nil:
		return doctor.Finding{
			Answer: doctor.Present,
			Detail: "backends can see clients' addresses where their answers come by this host; programs on every device but loopback see to it",
		}
	case errors.Is(err, bpf.ErrPermission):
		return doctor.Finding{Answer: doctor.Absent, Detail: err.Error(), Todo: "run as root, or give the capability"}
	case errors.Is(err, bpf.ErrNotSupported), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EAFNOSUPPORT): // the latter: no policy routing
		return doctor.Finding{Answer: doctor.Absent, Detail: err.Error()}
	}
	return doctor.Finding{Answer: doctor.Inconclusive, Detail: err.Error()}
}

// handoffProbes are what the doctor asks the kernel about handoffs.
func handoffProbes(stateDir string) (probes []doctor.Probe) {
	for _, f := range bpf.HandoffFeatures() {
		probes = append(probes, doctor.Probe{Name: f.Name, Run: func() doctor.Finding { return handoffFinding(f) }})
	}
	return append(probes, doctor.Probe{Name: "pins", Run: func() doctor.Finding { return pinsFinding(stateDir) }})
}

// handoffFinding says what a handoff does without, where it can.
func handoffFinding(f bpf.Feature) doctor.Finding {
	found := featureFinding(f)
	if found.Answer == doctor.Absent && f.Without != "" {
		found.Todo = fmt.Sprintf("nothing: %s (Linux %s has it)", f.Without, f.Since)
	}
	return found
}

// pinsFinding says whether offloaded flows outlive the process.
func pinsFinding(stateDir string) doctor.Finding {
	where, err := bpf.PinsLast(stateDir)
	switch {
	case err == nil:
		return doctor.Finding{Answer: doctor.Present, Detail: "offloaded flows outlive the process: " + where}
	case errors.Is(err, bpf.ErrPrivateMounts):
		return doctor.Finding{
			Answer: doctor.Absent, Detail: "offloaded flows end with the process: " + err.Error(),
			Todo: "enter the network namespace with nsenter --net, not with ip netns exec; or switch private mounts off in the service manager",
		}
	case errors.Is(err, bpf.ErrNotSupported), errors.Is(err, bpf.ErrPermission):
		return doctor.Finding{
			Answer: doctor.Absent, Detail: "offloaded flows end with the process: " + err.Error(),
			Todo: "mount a bpffs at \"bpf\" in the state directory",
		}
	}
	return doctor.Finding{Answer: doctor.Inconclusive, Detail: err.Error()}
}
