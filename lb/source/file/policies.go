package file

import (
	"slices"

	"github.com/baton-lb/baton/lb"
)

// ParsePolicies reads keys of a service as they stand in the file, but for what says what it serves (name, frontends, backends)
// and those of except, over what s has. name is what its faults call the text; the error is a Faults with everything that is wrong.
// With an error s is as it was.
func ParsePolicies(name string, data []byte, s *lb.Service, except ...string) error {
	root, bad := readTree(name, data)
	if bad != nil {
		return Faults{bad}
	}
	d := &decoder{file: name, budget: len(data) + maxAliased}
	got := *s
	fields := slices.DeleteFunc(slices.Clone(policyFields), func(f field[service]) bool { return slices.Contains(except, f.key) })
	decodeMap(d, root, fields, &got)
	d.validateDefaults(got, root)
	if len(d.faults) > 0 {
		return d.faults.sorted()
	}
	*s = got
	return nil
}
