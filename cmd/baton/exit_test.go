package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const goodFile = `
admin: {http: ""}
services:
  - name: web
    frontends: ["tcp://127.0.0.1:8000"]
    backends: ["127.0.0.1:9001"]
`

const badFile = `
services:
  - name: web
    frontends: ["tcp://127.0.0.1:0"]
    backens: ["127.0.0.1:9001"]
`

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "baton.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestExitCodes runs the program itself.
func TestExitCodes(t *testing.T) {
	good, bad := writeFile(t, goodFile), writeFile(t, badFile)
	none := filepath.Join(t.TempDir(), "none")
	for _, tc := range []struct {
		args   string
		code   int
		stdout string // part of it
		stderr string // part of it; it is then one line
	}{
		{"", 0, "Available Commands", ""},
		{"help flows", 0, "baton flows [flags]", ""},
		{"flows --help", 0, "--backend", ""},
		{"version", 0, "baton ", ""},
		{"version -o json", 0, `"go":"go1.`, ""},
		{"completion bash", 0, "bash completion", ""},
		{"check --config " + good, 0, "is fine: 1 service, 1 frontend, 1 backend", ""},
		{"check --config " + bad, 1, bad + ":4: ", ""},
		{"check --config " + bad + " -o json", 1, `"line":5`, ""},
		{"check --config " + none, 1, "", "no such file"},
		{"run --config " + none, 1, "", "no such file"},
		{"flows --socket " + none, 1, "", "no baton is running here"},
		{"ready --socket " + none, 1, "", "no baton is running here"},
		{"ready --pid -1", 2, "", "--pid -1 is no process"},
		{"drain web --socket " + none, 1, "", "no baton is running here"},

		{"flws", 2, "", `unknown command "flws": did you mean flows?`},
		{"nonsense", 2, "", `unknown command "nonsense" (see baton --help)`},
		{"--nonsense", 2, "", "unknown flag: --nonsense (see baton --help)"},
		{"flows --nonsense", 2, "", "unknown flag: --nonsense (see baton flows --help)"},
		{"flows extra", 2, "", `unexpected argument "extra"`},
		{"flows -o xml", 2, "", "use table or json or wide"},
		{"trace -o wide", 2, "", "use table or json"},
		{"flows --client nowhere", 2, "", `--client "nowhere": want IP, CIDR`},
		{"flows --state open", 2, "", "use dialing, established"},
		{"backends --path userspace", 2, "", "unknown flag: --path"},
		{"drain", 2, "", "SERVICE/IP:PORT | IP:PORT is missing"},
		{"drain a b", 2, "", `unexpected argument "b"`},
		{"drain /", 2, "", "want SERVICE"},
		{"reset", 2, "", "ID is missing"},
		{"reset zzzz", 2, "", `"zzzz" is no flow's id`},
		{"handoff", 2, "", "ID is missing"},
		{"handoff ff", 2, "", `"ff" is no flow's id`},
		{"run --config " + good + " --log-level loud", 2, "", "use debug, info, warn or error (see baton run --help)"},
		{"check", 2, "", "--config"},
		{"run", 2, "", "--config"},
		{"run extra", 2, "", `unexpected argument "extra"`},
	} {
		t.Run(tc.args, func(t *testing.T) {
			code, stdout, stderr := program(t, strings.Fields(tc.args)...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if !strings.Contains(stdout, tc.stdout) || tc.stdout == "" && stdout != "" {
				t.Errorf("stdout %q, want %q", stdout, tc.stdout)
			}
			if !strings.Contains(stderr, tc.stderr) || tc.stderr == "" && stderr != "" {
				t.Errorf("stderr %q, want %q", stderr, tc.stderr)
			}
			if strings.Count(stderr, "\n") > 1 || tc.stderr != "" && !strings.HasPrefix(stderr, "baton: ") {
				t.Errorf("not one line: %q", stderr)
			}
		})
	}
}

// TestNoStubs holds the list of commands.
func TestNoStubs(t *testing.T) {
	for _, c := range newRootCommand().Commands() {
		if !c.Runnable() || c.Short == "" {
			t.Errorf("%s cannot be run, or does not say what it does", c.Name())
		}
		if !c.Hidden && strings.Contains(c.Short+c.Long, "not built") {
			t.Errorf("%s is a stub", c.Name())
		}
	}
}
