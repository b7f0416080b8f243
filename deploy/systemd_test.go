package deploy

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// unit is a systemd unit: section, key, values.
type unit map[string]map[string][]string

// readUnit reads a unit in the syntax of systemd.syntax(7), of which ours need no
// continued lines.
func readUnit(t *testing.T, path string) unit {
	t.Helper()
	u := make(unit)
	section := ""
	for line := range strings.Lines(read(t, path)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
			continue
		case line[0] == '[' && line[len(line)-1] == ']':
			section = line[1 : len(line)-1]
			u[section] = make(map[string][]string)
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || section == "" || strings.HasSuffix(line, `\`) {
			t.Fatalf("%s: cannot read %q", path, line)
		}
		u[section][key] = append(u[section][key], value)
	}
	return u
}

// one is the value of a key that is there once.
func (u unit) one(t *testing.T, section, key string) string {
	t.Helper()
	if v := u[section][key]; len(v) == 1 {
		return v[0]
	}
	t.Errorf("[%s] %s= is there %d times", section, key, len(u[section][key]))
	return ""
}

func parseService(t *testing.T, path string) {
	u := readUnit(t, path)
	start := strings.Fields(u.one(t, "Service", "ExecStart"))
	if start[0] != binary {
		t.Errorf("it starts %s, and the binary is %s", start[0], binary)
	}
	checkCommandLine(t, start[1:])
	if kind := u.one(t, "Service", "Type"); kind != "notify" {
		t.Errorf("it is of type %s: what comes after it begins before it serves", kind)
	}
	exit, err := time.ParseDuration(start[slices.Index(start, "--exit-timeout")+1])
	stop, stopErr := time.ParseDuration(strings.TrimSuffix(u.one(t, "Service", "TimeoutStopSec"), "in"))
	if err != nil || stopErr != nil || stop <= exit {
		t.Errorf("it is killed after %v, and flows have %v (%v, %v)", stop, exit, err, stopErr)
	}
	var want []string
	for _, c := range daemonSet(t).Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Add {
		want = append(want, "CAP_"+string(c))
	}
	if got := strings.Fields(u.one(t, "Service", "CapabilityBoundingSet")); !slices.Equal(got, want) {
		t.Errorf("it has %v, and the container %v", got, want)
	}
	mount := u.one(t, "Unit", "Requires")
	at := readUnit(t, "systemd/"+mount).one(t, "Mount", "Where")
	if at != stateDir+"/bpf" {
		t.Errorf("flows are pinned at %s", at)
	}
	if dir := u.one(t, "Service", "ReadWritePaths"); dir != stateDir {
		t.Errorf("it may write to %s", dir)
	}
}

func parseMount(t *testing.T, path string) {
	u := readUnit(t, path)
	where := u.one(t, "Mount", "Where")
	if name := "systemd/" + strings.ReplaceAll(strings.Trim(where, "/"), "/", "-") + ".mount"; name != path {
		t.Errorf("systemd wants the unit of %s to be called %s", where, name)
	}
	if kind := u.one(t, "Mount", "Type"); kind != "bpf" {
		t.Errorf("it mounts %s", kind)
	}
}
