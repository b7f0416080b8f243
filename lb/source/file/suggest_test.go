package file

import "testing"

func TestNearest(t *testing.T) {
	known := []string{"name", "frontends", "backends", "onBackendRemoved", "timeouts", "health", "mode"}
	for word, want := range map[string]string{
		"frontend":           "frontends",
		"Backends":           "backends",
		"on-backend-removed": "onBackendRemoved",
		"helath":             "health",
		"timeout":            "timeouts",
		"nmae":               "name",
		"mod":                "mode",
		"x":                  "",
		"selector":           "",
		"":                   "",
	} {
		if got := nearest(word, known); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}
