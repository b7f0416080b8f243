package testvm

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// needMachine skips a test that boots.
func needMachine(t *testing.T) {
	t.Helper()
	if os.Getenv("BATON_TEST_VM") == "" {
		t.Skip("boots a virtual machine: run by make test-vm (BATON_TEST_VM=1)")
	}
}
