package file

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/baton-lb/baton/lb"
)

// Load reads and parses a file. What is wrong inside it is a Faults; that it
// cannot be read at all is another error.
func Load(path string) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// readFile reads at most one byte more than MaxSize.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return data, nil
}

// Parse reads a configuration. name is what its faults call the file. The error
// is a Faults with everything that is wrong; services that are returned pass
// lb.Service.Validate.
func Parse(name string, data []byte) (*Config, error) {
	if len(data) > MaxSize {
		return nil, Faults{{File: name, Line: 1, Message: fmt.Sprintf("the file is larger than %d MiB", MaxSize>>20)}}
	}
	root, bad := readTree(name, data)
	if bad != nil {
		return nil, Faults{bad}
	}
	d := &decoder{file: name, budget: len(data) + maxAliased}
	f := file{Config: Default()}
	f.File, f.sum = name, sha256.Sum256(data)
	decodeMap(d, root, fileFields, &f)
	d.services(&f)
	if len(d.faults) > 0 {
		return nil, d.faults.sorted()
	}
	return f.Config, nil
}

// file is the configuration while it is read. Services wait until all else is
// known, because defaults may stand after them.
type file struct {
	*Config
	defaults *node // nil = none
	services *node // nil = none
}

var fileFields = []field[file]{
	{"admin", func(d *decoder, n *node, f *file) { decodeMap(d, n, adminFields, &f.Admin) }},
	{"capture", func(d *decoder, n *node, f *file) { decodeCapture(d, n, &f.Capture) }},
	{"source", func(d *decoder, n *node, f *file) { decodeMap(d, n, sourceFields, &f.Source) }},
	{"zone", func(d *decoder, n *node, f *file) { printable(d, n, &f.Zone) }},
	{"defaults", func(_ *decoder, n *node, f *file) { f.defaults = n }},
	{"services", func(_ *decoder, n *node, f *file) { f.services = n }},
}

// services decodes all services over their defaults, then looks at each one
// whole and at all of them together.
func (d *decoder) services(f *file) {
	base := lb.Default("")
	if f.defaults != nil {
		d.enter("defaults")
		decodeMap(d, f.defaults, defaultFields, &base)
		d.validateDefaults(base, f.defaults)
	}
	if f.services == nil {
		return
	}
	d.enter("")
	d.path = append(d.path, step{key: "services"})
	all := decodeList(d, f.services, func(_ *decoder, n *node, to **node) { *to = n })
	together := newConflicts(d, f.Lines)
	f.Services = make([]lb.Service, 0, len(all))
	for i, n := range all {
		if n == nil || d.budget < 0 {
			continue
		}
		d.enter(scopeOf(i, n))
		if n.Kind != yaml.MappingNode {
			d.fault(n, "is %s, not a service: write its keys, as {name: …, frontends: …, backends: …}", kindOf(n))
			continue
		}
		s := base
		decodeMap(d, n, serviceFields, &s)
		d.validate(&s, n, f.defaults)
		together.add(&s, n)
		f.Services = append(f.Services, s)
	}
}

// scopeOf names a service by its name if it has one, else by its place.
func scopeOf(i int, n *node) string {
	if name := child(n, "name"); name != nil && isScalar(name, "!!str") && name.Value != "" {
		return "service " + name.Value
	}
	return fmt.Sprintf("services[%d]", i)
}
