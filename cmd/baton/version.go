package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build is what the binary knows of its making.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`     // of the commit
	Modified bool   `json:"modified,omitempty"` // not all of it is in the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// version is the version in one word.
func version() string { return readBuild().Version }

func (b build) String() string {
	s := fmt.Sprintf("baton %s", b.Version)
	if b.Commit != "" {
		s += fmt.Sprintf(", commit %.12s", b.Commit)
		if b.Modified {
			s += " with changes"
		}
	}
	return s + fmt.Sprintf(", %s %s", b.Go, b.Platform)
}

func newVersionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Say which baton this is", Args: noArgs}
	format := registerOutput(cmd, asTable, asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if format.value == asJSON {
			return writeJSON(cmd.OutOrStdout(), readBuild())
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), readBuild())
		return err
	}
	return cmd
}
