package admin

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

func TestTraceEvents(t *testing.T) {
	in := newInstance(t)
	next, _ := in.stream("/v1/trace?client=10.201.1.2")
	in.open("10.201.9.9:1", time.Now()) // not asked for
	rec := in.open("10.201.1.2:40000", time.Now())
	rec.FirstByte(flow.ByClient)
	rec.NotOffloaded(flow.NotOffloadedUnavailable)
	rec.HalfClosed(flow.ByClient)
	rec.Finish(flow.ByClient, flow.ReasonClosed)
	for _, want := range []string{
		`"event":"accepted","mode":"proxy","protocol":"tcp","service":"web","frontend":"10.96.0.10:80","client":"10.201.1.2:40000"`,
		`"event":"picked","backend":"10.202.1.2:8080","picked":"algorithm"`,
		`"event":"dialled"`,
		`"event":"first-byte","from":"client"`,
		`"event":"not-offloaded","notOffloaded":"unavailable"`,
		`"event":"half-closed","state":"half-closed","from":"client"`,
		`"event":"ended","state":"ended"`,
	} {
		line := next()
		if !strings.Contains(line, want) || !strings.Contains(line, `"flow":"`+rec.ID().String()+`"`) {
			t.Errorf("got %swant %s", line, want)
		}
		if strings.Contains(want, "ended\",") && !strings.Contains(line, `"endedBy":"client","reason":"closed"`) {
			t.Errorf("got %s", line)
		}
	}
}

func TestTraceEndsWithTheInstance(t *testing.T) {
	in := newInstance(t)
	next, _ := in.stream("/v1/trace")
	in.open("10.201.1.2:40000", time.Now())
	if !strings.Contains(next(), "accepted") {
		t.Fatal("no event")
	}
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	var last string
	for line := next(); line != ""; line = next() {
		last = line
	}
	if !strings.Contains(last, "dialled") {
		t.Errorf("what waited was not written: last is %q", last)
	}
}

// TestSlowTraceReader reads nothing until far too much has happened. Nothing
// waits for it, and it is told what it missed.
func TestSlowTraceReader(t *testing.T) {
	in := newInstance(t, func(o *Options) { o.TraceBuffer = 16 })
	resp, err := in.client().Get("http://baton/v1/trace")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	const flows = 5000
	began := time.Now()
	for range flows {
		in.open("10.201.1.2:40000", time.Now()).Finish(flow.ByClient, flow.ReasonClosed)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("the data path waited: %s", d)
	}
	// What was written or missed is everything: accepted, picked, dialled, ended.
	seen, missed := 0, uint64(0)
	lines := bufio.NewScanner(resp.Body)
	for seen+int(missed) < 4*flows && lines.Scan() {
		var m Missed
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		if missed += m.Missed; m.Missed == 0 {
			seen++
		}
	}
	if seen+int(missed) != 4*flows || missed == 0 {
		t.Errorf("saw %d, missed %d, want %d together", seen, missed, 4*flows)
	}
	if n := in.registry.DropCounts()[flow.DropEvents]; n != missed {
		t.Errorf("drops counted %d, told %d", n, missed)
	}
}

// TestReaderThatNeverReads is cut off.
func TestReaderThatNeverReads(t *testing.T) {
	in := newInstance(t, func(o *Options) { o.SlowReader = 300 * time.Millisecond })
	resp, err := in.client().Get("http://baton/v1/trace")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	in.eventually("the subscription is gone", func() bool {
		for range 2000 { // more than are kept for a reader
			in.open("10.201.1.2:40000", time.Now()).Finish(flow.ByClient, flow.ReasonClosed)
		}
		before := in.registry.DropCounts()[flow.DropEvents]
		return before > 0 && len(in.server.listeners) > 0 && idle(in, before)
	})
}

// idle reports whether a flow more makes no event that is dropped: nobody
// listens any longer.
func idle(in *instance, before uint64) bool {
	for range 5000 {
		in.open("10.201.1.2:40000", time.Now()).Finish(flow.ByClient, flow.ReasonClosed)
	}
	return in.registry.DropCounts()[flow.DropEvents] == before
}
