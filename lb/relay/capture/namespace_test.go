package capture

import (
	"errors"
	"testing"

	"github.com/baton-lb/baton/internal/testnet"
)

// TestNamespaceDo: the function runs inside, from wherever it is called, and its caller stays where it was.
func TestNamespaceDo(t *testing.T) {
	testnet.RequireRoot(t)
	h := testnet.New(t).Host("other")
	var ns *namespace
	var err error
	h.Do(func() { ns, err = currentNamespace() })
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	fault := errors.New("of the function")
	check := func(outside bool) {
		before := currentInode()
		if (before == ns.inode) == outside {
			t.Fatal("the test is in the wrong place")
		}
		var inside uint64
		if err := ns.do(func() error { inside = currentInode(); return fault }); err != fault || inside != ns.inode {
			t.Errorf("ran in %d, want %d; %v", inside, ns.inode, err)
		}
		if now := currentInode(); now != before {
			t.Errorf("called from %d, back in %d", before, now)
		}
	}
	check(true)
	h.Do(func() { check(false) })
}
