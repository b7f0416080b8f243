package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/baton-lb/baton/internal/admin/doctor"
	"github.com/baton-lb/baton/lb/source/file"
	"github.com/baton-lb/baton/lb/source/kube"
)

// checked is what `baton check -o json` prints.
type checked struct {
	File      string    `json:"file"`
	Fine      bool      `json:"fine"`
	Faults    []checkAt `json:"faults"`
	Warnings  []checkAt `json:"warnings"`
	Services  int       `json:"services"`
	Frontends int       `json:"frontends"`
	Backends  int       `json:"backends"`
	Proxy     bool      `json:"-"` // a KubeProxyConfiguration, which has none of these
}

type checkAt struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

func (c checkAt) text(kind string) string {
	if c.Line == 0 {
		return fmt.Sprintf("%s: %s%s", c.File, kind, c.Message)
	}
	return fmt.Sprintf("%s:%d: %s%s", c.File, c.Line, kind, c.Message)
}

func newCheckCommand() *cobra.Command {
	var path, objects string
	var proxy bool
	cmd := &cobra.Command{
		Use:   "check --config FILE | --kube-objects FILE",
		Short: "Say what is wrong with a configuration, line by line",
		Long: `Read a configuration as ` + "`baton run`" + ` would and say everything that is wrong with
it, a line each: FILE:LINE: MESSAGE. Warnings are about what is allowed and hardly
meant; they leave the exit code at 0. Nothing of this host is looked at: that is
what ` + "`baton doctor --config FILE`" + ` does. With --kube-objects it reads a dump of
a cluster, or a directory of dumps, and says what would not be served. With
--kubernetes the file of --config is a KubeProxyConfiguration, as it is for run.`,
		Args: noArgs,
	}
	registerConfig(cmd, &path)
	cmd.Flags().StringVar(&objects, "kube-objects", "", "a file of Kubernetes objects, or a directory of such files")
	_ = cmd.MarkFlagFilename("kube-objects", "yaml", "yml", "json")
	registerProxyConfig(cmd, &proxy)
	format := registerOutput(cmd, asTable, asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var result checked
		var err error
		switch {
		case (path == "") == (objects == ""):
			return badUsage(cmd, errors.New("name the file to check with --config, or with --kube-objects"))
		case proxy && objects != "":
			return badUsage(cmd, errors.New("--kubernetes is about the file of --config"))
		case objects != "":
			result, err = checkObjects(objects)
		case proxy:
			result, err = checkProxyConfig(path)
		default:
			result, err = check(path)
		}
		if err != nil {
			return err
		}
		if format.value == asJSON {
			err = writeJSON(cmd.OutOrStdout(), result)
		} else {
			err = tellChecked(cmd.OutOrStdout(), result)
		}
		if err == nil && !result.Fine {
			err = errTold
		}
		return err
	}
	return cmd
}

// registerConfig adds --config to a command that reads a file.
func registerConfig(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "config", "", "the file (baton.yaml)")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
}

// registerProxyConfig adds --kubernetes to a command that reads a file.
func registerProxyConfig(cmd *cobra.Command, proxy *bool) {
	cmd.Flags().BoolVar(proxy, "kubernetes", false, "the file of --config is a KubeProxyConfiguration")
}

// checkProxyConfig reads a file of kube-proxy's.
func checkProxyConfig(path string) (checked, error) {
	out := checked{File: path, Faults: []checkAt{}, Warnings: []checkAt{}, Proxy: true}
	_, err := kube.LoadProxyConfig(path)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		out.Fine = err == nil
		return out, err
	}
	for _, e := range joined.Unwrap() {
		var f *kube.ConfigFault
		if !errors.As(e, &f) {
			return out, err
		}
		out.Faults = append(out.Faults, checkAt{f.File, f.Line, f.Text()})
	}
	return out, nil
}

// check reads a file. The error is one of reading it at all.
func check(path string) (checked, error) {
	out := checked{File: path, Faults: []checkAt{}, Warnings: []checkAt{}}
	config, err := file.Load(path)
	var faults file.Faults
	if errors.As(err, &faults) {
		for _, f := range faults {
			out.Faults = append(out.Faults, checkAt{f.File, f.Line, f.Message})
		}
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.Fine = true
	for _, w := range doctor.Static(forDoctor(config)) {
		out.Warnings = append(out.Warnings, checkAt{path, lineOf(config, w), w.String()})
	}
	out.Services = len(config.Services)
	for i := range config.Services {
		out.Frontends += len(config.Services[i].Frontends)
		out.Backends += len(config.Services[i].Backends)
	}
	return out, nil
}

// checkObjects reads a dump of a cluster.
func checkObjects(path string) (checked, error) {
	c, err := kube.CheckFiles(path, "")
	if err != nil {
		return checked{}, err
	}
	out := checked{
		File: path, Fine: len(c.Faults) == 0, Faults: []checkAt{}, Warnings: []checkAt{},
		Services: c.Counts.Services, Frontends: c.Counts.Frontends, Backends: c.Counts.Backends,
	}
	for _, f := range c.Faults {
		out.Faults = append(out.Faults, checkAt{File: f.File, Message: f.Text()})
	}
	return out, nil
}

func tellChecked(w io.Writer, c checked) error {
	for _, f := range c.Faults {
		if _, err := fmt.Fprintln(w, f.text("")); err != nil {
			return err
		}
	}
	for _, f := range c.Warnings {
		if _, err := fmt.Fprintln(w, f.text("warning: ")); err != nil {
			return err
		}
	}
	if !c.Fine {
		return nil
	}
	if c.Proxy {
		_, err := fmt.Fprintf(w, "%s is fine\n", c.File)
		return err
	}
	_, err := fmt.Fprintf(w, "%s is fine: %s, %s, %s\n", c.File,
		plural(c.Services, "service"), plural(c.Frontends, "frontend"), plural(c.Backends, "backend"))
	return err
}

// lineOf finds the line of the frontend or the service that a warning is about.
func lineOf(c *file.Config, w doctor.Warning) int {
	if line, ok := c.Lines.Frontends[w.Frontend]; ok {
		return line
	}
	return c.Lines.Services[w.Service]
}
