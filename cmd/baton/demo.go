package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/baton-lb/baton/internal/admin/client"
	"github.com/baton-lb/baton/internal/testnet"
)

// demo is the demonstration: hosts in network namespaces, this program as the
// balancer between them, and a story that checks what it tells.
type demo struct {
	*stage
	screen *screen
	fast   bool

	// Set in the first step.
	dir      string
	star     *testnet.Star
	clients  []*testnet.Host
	api      *client.Client
	instance *testnet.Cmd

	web    []*talk                    // connections to web that stay open
	pinned map[*testnet.Host]string   // who answers each client at sticky
	served map[string]*testnet.Server // by name and port: backend1:80
	names  map[string]*nameServer     // by name
}

func newDemoCommand() *cobra.Command {
	fast := false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show it all on this machine, in under a minute",
		Long: `Make clients, a balancer and three backends in network namespaces of their own,
run this program on the balancer, and show what it does: balancing, affinity, a
backend that dies, a drain, a reload, UDP, the trace of one flow, a handoff to the
kernel that outlives the process. Every command is shown with its true output, and
what is told is checked; exit code 1 when it does not happen so. Nothing outside
those namespaces and one directory for temporary files is touched, and nothing is
left. It needs root.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return errors.New("the demo makes network namespaces and so needs root: use sudo, or make demo")
			}
			ctx := cmd.Context()
			if ctx == nil {
				ctx = context.Background()
			}
			// SIGPIPE among them: output that nobody reads must not end us unclean.
			ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
			defer stop()
			return runDemo(ctx, newScreen(cmd.OutOrStdout()), fast)
		},
	}
	cmd.Flags().BoolVar(&fast, "fast", false, "do not wait for readers")
	return cmd
}

// runDemo tells the story and undoes everything.
func runDemo(ctx context.Context, screen *screen, fast bool) error {
	began := time.Now()
	err := perform(ctx, func(s *stage) {
		d := &demo{stage: s, screen: screen, fast: fast}
		d.play()
	})
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	screen.title("The end")
	screen.say("All of it happened as told, in " + humanAge(time.Since(began)) + ". Hosts, processes and files are gone.")
	return screen.err
}

// play is the story.
func (d *demo) play() {
	d.showHosts()
	d.showFile()
	d.showBalancing()
	d.showAffinity()
	d.showFailover()
	d.showDrain()
	d.showReload()
	d.showUDP()
	d.showTrace()
	d.showHandoff()
	d.finish()
}

// rest gives readers time, of the length of what they read.
func (d *demo) rest(lines int) {
	if d.screen.err != nil {
		d.Fatalf("print: %w", d.screen.err)
	}
	if d.fast {
		d.pause(0)
		return
	}
	d.pause(500*time.Millisecond + time.Duration(lines)*200*time.Millisecond)
}

// breathe is the moment between a command and its output.
func (d *demo) breathe() {
	if !d.fast {
		d.pause(300 * time.Millisecond)
	}
}
