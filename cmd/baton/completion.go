package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/admin/client"
	"github.com/baton-lb/baton/internal/flow"
)

// A shell waits for completions: they are few, or none, but soon.
const (
	completeWait = 500 * time.Millisecond
	completeMax  = 500
)

var errEnough = errors.New("enough completions")

// complete asks the instance for words. Without one there are none.
func (t *target) complete(list func(context.Context, *client.Client, func(string)) error) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), completeWait)
		defer cancel()
		c := client.New(t.socket)
		defer c.Close()
		var found []string
		_ = list(ctx, c, func(word string) {
			if strings.HasPrefix(word, prefix) && len(found) < completeMax {
				found = append(found, word)
			}
		})
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeTarget completes what drain and undrain take.
func completeTarget(t *target) cobra.CompletionFunc {
	return onlyFirst(t.complete(func(ctx context.Context, c *client.Client, add func(string)) error {
		last := ""
		return c.Backends(ctx, admin.FilterSpec{}, func(b *admin.Backend) error {
			if b.Service != last {
				add(b.Service)
				last = b.Service
			}
			add(b.Service + "/" + b.Backend.String() + "\t" + string(b.State))
			return nil
		})
	}))
}

// completeFlow completes the ids of live flows.
func completeFlow(t *target) cobra.CompletionFunc {
	return onlyFirst(t.complete(func(ctx context.Context, c *client.Client, add func(string)) error {
		n := 0
		return c.Flows(ctx, admin.FilterSpec{}, false, func(v *flow.View) error {
			add(v.ID.String() + "\t" + describeFlow(v))
			if n++; n > completeMax {
				return errEnough
			}
			return nil
		})
	}))
}

// onlyFirst completes the first argument and no other.
func onlyFirst(f cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return f(cmd, args, prefix)
	}
}
