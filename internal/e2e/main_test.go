package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
)

// batonPath is the command under test: a fresh build, or what builtEnv names where
// there is no Go to build one.
var batonPath string

const builtEnv = "BATON_COMMAND"

// sideBySide is how many tests run at once: most of them wait.
const sideBySide = 6

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = f.Value.Set(strconv.Itoa(max(sideBySide, runtime.GOMAXPROCS(0))))
	}
	if batonPath = os.Getenv(builtEnv); batonPath != "" {
		return m.Run()
	}
	if batonPath = os.Getenv("BATON_COMMAND"); batonPath != "" {
		return m.Run() // built by who runs the tests where there is no Go
	}
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
