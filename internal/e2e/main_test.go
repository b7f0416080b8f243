package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// batonPath is the command under test.
var batonPath string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "baton-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	batonPath = filepath.Join(dir, "baton")
	args := []string{"build", "-o", batonPath}
	if raceDetector {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "github.com/baton-lb/baton/cmd/baton")...)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the command: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
