package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/admin/client"
	"github.com/baton-lb/baton/internal/flow"
)

// filterHelp says what each filter takes.
var filterHelp = map[string]string{
	"service":  "only this service",
	"client":   "only from here: IP, CIDR, or either with :PORT",
	"backend":  "only to here: IP, CIDR, or either with :PORT",
	"frontend": "only at this frontend: [PROTOCOL://]IP[:PORT] or CIDR",
	"protocol": "only tcp, udp or sctp",
	"path":     "only carried by userspace, bpf, flowtable or kernel",
	"state":    "only in this state: dialing, established, half-closed, handing-off, offloaded, ended",
}

// filterNote stands in the help of every command that has filters.
const filterNote = `
Filters may be repeated: words of one filter are alternatives, different filters
must all match.`

// filters are the flags that select what a command shows.
type filters struct{ spec admin.FilterSpec }

// register adds the filters called names.
func (f *filters) register(cmd *cobra.Command, t *target, names ...string) {
	cmd.Long += filterNote
	for _, name := range names {
		cmd.Flags().StringArrayVar(f.spec.Field(name), name, nil, filterHelp[name])
		_ = cmd.RegisterFlagCompletionFunc(name, completeFilter(t, name))
	}
}

// check parses the filters, so that what is wrong with them is said by name
// before anybody is asked.
func (f *filters) check(cmd *cobra.Command) error {
	_, err := f.spec.Parse()
	return badUsage(cmd, err)
}

// completeFilter completes the words that one filter takes.
func completeFilter(t *target, name string) cobra.CompletionFunc {
	switch name {
	case "protocol":
		return cobra.FixedCompletions([]string{"tcp", "udp", "sctp"}, cobra.ShellCompDirectiveNoFileComp)
	case "path":
		return cobra.FixedCompletions(words(flow.Paths), cobra.ShellCompDirectiveNoFileComp)
	case "state":
		return cobra.FixedCompletions(words(flow.States), cobra.ShellCompDirectiveNoFileComp)
	case "service":
		return t.complete(func(ctx context.Context, c *client.Client, add func(string)) error {
			return c.Services(ctx, admin.FilterSpec{}, func(s *admin.Service) error {
				add(s.Name)
				return nil
			})
		})
	case "frontend":
		return t.complete(func(ctx context.Context, c *client.Client, add func(string)) error {
			return c.Services(ctx, admin.FilterSpec{}, func(s *admin.Service) error {
				for _, fe := range s.Frontends {
					add(fe.Frontend + "\t" + s.Name)
				}
				return nil
			})
		})
	case "backend":
		return t.complete(func(ctx context.Context, c *client.Client, add func(string)) error {
			return c.Backends(ctx, admin.FilterSpec{}, func(b *admin.Backend) error {
				add(b.Backend.String() + "\t" + b.Service)
				return nil
			})
		})
	}
	return cobra.NoFileCompletions
}

func words[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, w := range list {
		out[i] = string(w)
	}
	return out
}

// describeFlow is "SERVICE, CLIENT to BACKEND", for messages about one flow.
func describeFlow(v *flow.View) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s", v.Service, v.Client)
	if v.Backend.IsValid() {
		fmt.Fprintf(&b, " to %s", v.Backend)
	}
	return b.String()
}
