package bpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// TryFlows does in the calling thread's network namespace what every handoff needs: it loads the programs, makes a parking
// lot, and attaches them to it as to a device. Then all is taken away again. lot is what is missing for a lot alone, without
// which handoffs go on.
func TryFlows() (lot, err error) {
	f, err := OpenFlows(FlowsOptions{Capacity: 1})
	if err != nil {
		return nil, explain(err, handoffNeeds)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := featureRepair.Have(); err != nil {
		return nil, err
	}
	l, lot := OpenLot(f)
	if lot != nil {
		return lot, nil
	}
	return nil, l.Close()
}

// handoffNeeds is what a handoff cannot do without.
var handoffNeeds = []Feature{
	featureSyscall, featureRing, featureMmap, featureAtomics, featureLoop, featureNeigh, featureFIB, featureMTU, featureClock,
	featureRepair, featureMeminfo,
}

// PinsLast says where flows of the calling thread's network namespace would be pinned for a state directory, or in error why
// they would end with the process. Nothing is changed.
func PinsLast(stateDir string) (where string, err error) {
	at, err := filepath.Abs(bpffsPath(stateDir))
	if err != nil {
		return "", err
	}
	mounted := false
	if _, err := os.Stat(at); err == nil {
		if mounted, err = onBPFFS(at); err != nil {
			return "", err
		}
	}
	if !mounted {
		if err := featureBPFFS.Have(); err != nil {
			return "", err
		}
	}
	private, err := PrivateMounts()
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", errMountsUnknown, err)
	case private:
		return "", ErrPrivateMounts
	case mounted:
		return at + ", which is mounted", nil
	}
	return at + ", which will be mounted", nil
}

// ErrPrivateMounts says that what this process mounts ends with it: see [PrivateMounts].
var ErrPrivateMounts = errors.New("this process has a mount namespace of its own, and a bpffs in it ends with it")

var errMountsUnknown = errors.New("whether mounts outlive this process cannot be said")
