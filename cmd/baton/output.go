package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// output is the value of -o.
type output string

// The outputs.
const (
	asTable output = "table"
	asJSON  output = "json"
	asWide  output = "wide"
)

// outputFlag is a pflag.Value that takes some of the outputs.
type outputFlag struct {
	value   output
	allowed []output
}

func (f *outputFlag) String() string { return string(f.value) }
func (f *outputFlag) Type() string   { return "format" }
func (f *outputFlag) Set(s string) error {
	if !slices.Contains(f.allowed, output(s)) {
		return fmt.Errorf("use %s", joinOutputs(f.allowed, " or "))
	}
	f.value = output(s)
	return nil
}

// registerOutput adds -o; the first one allowed is the default.
func registerOutput(cmd *cobra.Command, allowed ...output) *outputFlag {
	f := &outputFlag{allowed[0], allowed}
	cmd.Flags().VarP(f, "output", "o", joinOutputs(allowed, " | "))
	words := strings.Split(joinOutputs(allowed, "\n"), "\n")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	return f
}

func joinOutputs(list []output, sep string) string {
	words := make([]string, len(list))
	for i, o := range list {
		words[i] = string(o)
	}
	return strings.Join(words, sep)
}

// writeJSON prints one document on one line.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
