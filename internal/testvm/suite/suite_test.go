package suite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A module whose tests do everything that tests do.
var module = map[string]string{
	"go.mod": "module example.org/m\n\ngo 1.26\n",
	"good/good_test.go": `package good
import ("os"; "testing")
func TestGood(t *testing.T) {}
func TestData(t *testing.T) { if _, err := os.ReadFile("testdata/a"); err != nil { t.Fatal(err) } }
func TestSlow(t *testing.T) { if os.Getenv("BATON_VM") == "" { t.Fatal("on a slow machine and not told so") } }
func TestNotListed(t *testing.T) { t.Fatal("not listed") }
`,
	"good/testdata/a": "a",
	"bad/bad_test.go": `package bad
import ("os"; "testing")
func TestBad(t *testing.T) { t.Error("bad news") }
func TestGood(t *testing.T) {}
func TestSkipped(t *testing.T) { t.Skip("not today") }
func TestExit(t *testing.T) { os.Exit(3) }
`,
	"deadly/deadly_test.go": `package deadly
import ("os"; "testing")
func TestGood(t *testing.T) {}
func TestPanic(t *testing.T) { os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0o200); select {} }
`,
	"never/never_test.go": "package never\nimport \"testing\"\nfunc TestNever(t *testing.T) {}\n",
}

func TestSuite(t *testing.T) {
	if os.Getenv("BATON_TEST_VM") == "" {
		t.Skip("boots virtual machines: run by make test-vm (BATON_TEST_VM=1)")
	}
	dir := t.TempDir()
	for name, text := range module {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, list string
		fails      []string // words of the error; none: all is well
		says       []string
		not        string
	}{
		{"good", "good TestGood|TestData\ngood TestSlow\n", nil, []string{"ok  \t6.1\tgood\t3 passed, 0 failed, 0 skipped", "test-vm: 3 passed, 0 failed, 0 skipped"}, "not listed"},
		{"bad", "bad TestBad|TestGood|TestSkipped\nbad TestSkipped\nbad TestGone\n", []string{"linux 6.1: bad", "line 2: bad TestSkipped", "line 3: bad TestGone"},
			[]string{"FAIL\t6.1\tbad\t1 passed, 1 failed, 1 skipped", "bad news", "not today"}, ""},
		{"exit", "bad TestExit\ngood TestGood", []string{"linux 6.1: bad", "line 1: bad TestExit"}, []string{"exit status 3", "ok  \t6.1\tgood"}, ""},
		{"panic", "good TestGood\ndeadly Test.*\nnever Test.*\n", []string{"linux 6.1: deadly", "line 3: never"}, []string{"sysrq triggered crash", "ok  \t6.1\tgood"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list, err := ParseList(tc.list)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			err = Suite{List: list, Kernels: []string{"6.1"}, Module: dir, Out: &out}.Run(t.Context())
			if (err != nil) != (len(tc.fails) > 0) || err != nil && !errors.Is(err, ErrFailed) {
				t.Errorf("got %v", err)
			}
			for _, words := range tc.fails {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%q is missing in: %v", words, err)
				}
			}
			for _, words := range tc.says {
				if !strings.Contains(out.String(), words) {
					t.Errorf("%q is missing in:\n%s", words, out.String())
				}
			}
			if tc.not != "" && strings.Contains(out.String(), tc.not) {
				t.Errorf("%q stands in:\n%s", tc.not, out.String())
			}
		})
	}
}
