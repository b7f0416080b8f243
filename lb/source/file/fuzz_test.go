package file

import (
	"bytes"
	"errors"
	"os"
	"testing"
)

// FuzzParse: Parse never panics; what it accepts passes the model's own
// validation and has no conflict; what it refuses it refuses at lines that exist.
func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	for _, c := range badFiles {
		f.Add([]byte(c.file))
	}
	if example, err := os.ReadFile(examplePath); err == nil {
		f.Add(example)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := Parse("f", data)
		if err != nil {
			checkLines(t, err, data)
			return
		}
		names := map[string]bool{}
		for i := range cfg.Services {
			s := &cfg.Services[i]
			if err := s.Validate(); err != nil {
				t.Errorf("accepted, but: %v", err)
			}
			if names[s.Name] {
				t.Errorf("accepted %q twice", s.Name)
			}
			names[s.Name] = true
			if l := cfg.Lines.Services[s.Name]; l < 1 || l > countLines(data) {
				t.Errorf("service %q at line %d", s.Name, l)
			}
		}
		if again, err := Parse("f", data); err != nil || len(again.Services) != len(cfg.Services) {
			t.Errorf("accepted once, then: %v", err)
		}
	})
}

func checkLines(t *testing.T, err error, data []byte) {
	t.Helper()
	var faults Faults
	if !errors.As(err, &faults) || len(faults) == 0 {
		t.Fatalf("refused without a fault: %v", err)
	}
	last := 0
	for _, x := range faults {
		if x.Line < max(last, 1) || x.Line > countLines(data) || x.Message == "" {
			t.Errorf("fault %q after line %d, in a file of %d lines", x, last, countLines(data))
		}
		last = x.Line
	}
}

// countLines counts as YAML 1.1 does: CR, LF, CR LF, NEL, LS and PS end a line.
func countLines(data []byte) int {
	n := 1
	for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
		n += bytes.Count(data, []byte(end))
	}
	return n - bytes.Count(data, []byte("\r\n"))
}
