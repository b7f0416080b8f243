package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/baton-lb/baton/internal/admin"
	"github.com/baton-lb/baton/internal/admin/client"
	"github.com/baton-lb/baton/internal/flow"
)

func newTraceCommand() *cobra.Command {
	var t target
	var f filters
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Follow flows as they begin, are decided about, and end",
		Long: `Follow flows live: a line when one is accepted, when its backend is picked (and
why), reached or not reached, at its first byte, when the kernel takes it over or
does not (why), and when it ends (by whom, why).
`,
		Args:    noArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return f.check(cmd) },
	}
	f.register(cmd, &t, admin.FilterNames()...)
	t.register(cmd)
	format := registerOutput(cmd, asTable, asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return t.ask(cmd, func(ctx context.Context, c *client.Client) error {
			lines, err := c.Trace(ctx, f.spec)
			if err != nil {
				return err
			}
			defer lines.Close()
			return follow(lines, format.value, cmd.OutOrStdout(), cmd.ErrOrStderr())
		})
	}
	return cmd
}

// follow prints events until the stream ends. What was missed is told apart
// from them.
func follow(lines *client.Lines, format output, out, notes io.Writer) error {
	for {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return errStopped
		}
		if err != nil {
			return err
		}
		if bytes.HasPrefix(line, []byte(`{"missed":`)) {
			var m admin.Missed
			if err := json.Unmarshal(line, &m); err != nil {
				return fmt.Errorf("read the stream: %w", err)
			}
			fmt.Fprintf(notes, "baton: too slow: %s missed here\n", plural(m.Missed, "event"))
			continue
		}
		if format != asJSON {
			var e flow.Event
			if err := json.Unmarshal(line, &e); err != nil {
				return fmt.Errorf("read the stream: %w", err)
			}
			line = []byte(eventLine(&e))
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			return err
		}
	}
}

// eventLine is an event for people.
func eventLine(e *flow.Event) string {
	const timeOfDay = "15:04:05.000000"
	s := fmt.Sprintf("%s  %s  %-13s  %s", e.Time.Local().Format(timeOfDay), e.Flow, e.Event, eventText(e))
	return printable(strings.TrimRight(s, " "))
}

func eventText(e *flow.Event) string {
	switch e.Event {
	case flow.EventAccepted:
		return fmt.Sprintf("%s from %s at %s://%s", e.Service, e.Client, e.Protocol, e.Frontend)
	case flow.EventPicked:
		return fmt.Sprintf("%s by %s", e.Backend, e.Picked)
	case flow.EventDialled:
		return addrPort(e.Backend)
	case flow.EventDialFailed:
		return fmt.Sprintf("%s: %s", e.Backend, e.DialFailure)
	case flow.EventFirstByte, flow.EventHalfClosed:
		return "by " + string(e.From)
	case flow.EventHandedOff:
		return "to " + string(e.Path)
	case flow.EventNotOffloaded:
		return string(e.NotOffloaded)
	case flow.EventEnded:
		return fmt.Sprintf("by %s: %s; %s to backend, %s to client",
			e.EndedBy, e.Reason, humanBytes(e.BytesToBackend), humanBytes(e.BytesToClient))
	}
	return ""
}
