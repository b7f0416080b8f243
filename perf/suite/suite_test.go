package suite

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/perf/mode"
	"github.com/baton-lb/baton/perf/report"
	"github.com/baton-lb/baton/perf/topology"
	"github.com/baton-lb/baton/perf/workload"
)

// fake is direct routing under another name, which lies in one way or another.
type fake struct {
	mode.Direct
	name    string
	tcpOnly bool
	shows   netip.Addr  // valid: claims that backends see that
	counts  mode.Counts // not nil: what it counts, always
	version error
	start   error
}

func (f fake) Name() string { return f.name }

func (f fake) Version(context.Context) (string, error) { return "1", f.version }

func (f fake) Carries(p flow.Proto) bool { return p == flow.TCP || !f.tcpOnly }

func (f fake) Start(ctx context.Context, h *topology.Hosts) (mode.Running, error) {
	r, err := f.Direct.Start(ctx, h)
	if err == nil {
		err = f.start
	}
	return running{r, f}, err
}

type running struct {
	mode.Running
	fake fake
}

func (r running) Shows() []netip.Addr {
	if r.fake.shows.IsValid() {
		return []netip.Addr{r.fake.shows}
	}
	return r.Running.Shows()
}

func (r running) Count(ctx context.Context) (mode.Counts, error) {
	if r.fake.counts != nil {
		return r.fake.counts, nil
	}
	return r.Running.Count(ctx)
}

// small is a plan of one short round.
func small(t *testing.T, modes []mode.Mode, workloads ...workload.Workload) Plan {
	testnet.RequireRoot(t)
	return Plan{
		Topology: topology.Star{}, Modes: modes, Workloads: workloads, Rounds: 1, Duration: 20 * time.Millisecond,
	}
}

// Whatever a mode lies about, its cell is an error and no figure; the others are
// not touched by it.
func TestLies(t *testing.T) {
	modes := []mode.Mode{
		fake{name: "honest"},
		fake{name: "masked", shows: netip.MustParseAddr("10.202.1.1")},
		fake{name: "idle", counts: mode.Counts{mode.Flows: 7}},
		fake{name: "mute", counts: mode.Counts{}},
		fake{name: "broken", start: errors.New("no luck")},
		fake{name: "absent", version: fmt.Errorf("x: %w", mode.ErrUnavailable)},
	}
	r, err := Run(t.Context(), small(t, modes, workload.Kept{Conns: 2}))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"honest": "", "masked": "backends saw 10.202.0.2", "idle": "counted 0 flows, of 2", "mute": "none of the counters", "broken": "no luck",
	}
	for _, c := range r.Cells {
		text, ok := want[c.Mode]
		if !ok || (text == "") != (c.Error == "") || !strings.Contains(c.Error, text) || (c.Error != "") != (c.Values == nil) {
			t.Errorf("%s: error %q, want %q; values %v", c.Mode, c.Error, text, c.Values)
		}
		delete(want, c.Mode)
	}
	if len(want) > 0 {
		t.Errorf("there is no cell of %v", want)
	}
	if i := slices.IndexFunc(r.Modes, func(m report.Mode) bool { return m.Name == "absent" }); i < 0 || r.Modes[i].Unavailable == "" {
		t.Errorf("modes are %+v", r.Modes)
	}
}

// Each round begins with another mode; a mode has no cell of what it cannot carry.
func TestOrder(t *testing.T) {
	p := small(t, []mode.Mode{fake{name: "a"}, fake{name: "b", tcpOnly: true}, fake{name: "c"}},
		workload.Kept{Conns: 1}, workload.Ask{Sockets: 1}, workload.Idle{Conns: 1})
	p.Rounds = 2
	var order []string
	p.Progress = func(c report.Cell) {
		if c.Error != "" {
			t.Errorf("%s, %s: %s", c.Workload, c.Mode, c.Error)
		}
		order = append(order, c.Mode)
	}
	if _, err := Run(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(order, ""), "abc"+"ac"+"bca"+"ca"; got != want {
		t.Errorf("the order was %s, want %s", got, want)
	}
}

// A run that is interrupted ends soon, and keeps what it has.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := small(t, []mode.Mode{fake{name: "a"}, fake{name: "b"}}, workload.Kept{Conns: 1})
	p.Progress = func(report.Cell) { cancel() }
	p.Rounds = 1000
	r, err := Run(ctx, p)
	if !errors.Is(err, context.Canceled) || len(r.Cells) != 1 {
		t.Errorf("%d cells, %v", len(r.Cells), err)
	}
}

func TestRotate(t *testing.T) {
	for n, want := range []string{"abc", "bca", "cab", "abc"} {
		if got := strings.Join(rotate([]string{"a", "b", "c"}, n), ""); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	if got := rotate([]int(nil), 3); len(got) != 0 {
		t.Errorf("nothing rotated is %v", got)
	}
}

func TestFill(t *testing.T) {
	spec := workload.Kept{Conns: 1}.Spec()
	r := workload.Result{Values: map[string]float64{"rate": 5}, Work: 1000,
		Used: workload.Used{Processes: time.Second, Load: 2 * time.Second, Machine: 4 * time.Second}}
	var c report.Cell
	fill(&c, spec, r, &stand{running: running{fake: fake{}, Running: processes{}}})
	if c.Values["rate"] != 5 || c.Values[cpuProcess] != 1000 || c.Values[cpuMachine] != 4000 || c.Other != time.Second {
		t.Errorf("the cell is %+v", c)
	}
}

type processes struct{ mode.Running }

func (processes) Processes() []int { return []int{1} }
