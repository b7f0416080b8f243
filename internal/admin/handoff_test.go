package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
)

// handoffs is a Handoffs of a test: each call does what the test says.
type handoffs func(id flow.ID) (flow.HandoffResult, flow.NotOffloaded, error)

func (h handoffs) Handoff(id flow.ID) (flow.HandoffResult, flow.NotOffloaded, error) { return h(id) }

func TestHandoff(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*flow.Record) (flow.HandoffResult, flow.NotOffloaded, error)
		want HandoffResult
	}{
		{"nothing can", nil, HandoffResult{Result: flow.HandoffRefused, NotOffloaded: flow.NotOffloadedUnavailable}},
		{"done", func(rec *flow.Record) (flow.HandoffResult, flow.NotOffloaded, error) {
			rec.Attach(flow.PathBPF, &testPath{end: rec.Finish})
			return flow.HandoffDone, "", nil
		}, HandoffResult{Result: flow.HandoffDone}},
		{"not eligible", func(*flow.Record) (flow.HandoffResult, flow.NotOffloaded, error) {
			return flow.HandoffRefused, flow.NotOffloadedSACK, nil
		}, HandoffResult{Result: flow.HandoffRefused, NotOffloaded: flow.NotOffloadedSACK}},
		{"the kernel refuses", func(*flow.Record) (flow.HandoffResult, flow.NotOffloaded, error) {
			return flow.HandoffFailed, flow.NotOffloadedFailed, errors.New("repair: operation not permitted")
		}, HandoffResult{Result: flow.HandoffFailed, NotOffloaded: flow.NotOffloadedFailed, Detail: "repair: operation not permitted"}},
		{"an error only", func(*flow.Record) (flow.HandoffResult, flow.NotOffloaded, error) {
			return "", "", errors.New("closed")
		}, HandoffResult{Result: flow.HandoffFailed, Detail: "closed"}},
		{"ends meanwhile", func(rec *flow.Record) (flow.HandoffResult, flow.NotOffloaded, error) {
			rec.Finish(flow.ByClient, flow.ReasonReset)
			return flow.HandoffRefused, flow.NotOffloadedPeerGone, nil
		}, HandoffResult{Result: flow.HandoffEnded, NotOffloaded: flow.NotOffloadedPeerGone}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var rec *flow.Record
			in := newInstance(t, func(o *Options) {
				if tt.do != nil {
					o.Handoffs = handoffs(func(id flow.ID) (flow.HandoffResult, flow.NotOffloaded, error) {
						if id != rec.ID() {
							t.Errorf("asked for %s, want %s", id, rec.ID())
						}
						return tt.do(rec)
					})
				}
			})
			rec = in.open("10.201.1.2:40000", time.Now())
			got := in.handoff(rec.ID().String()[:8])
			if v := rec.View(); got.Flow.ID != v.ID || got.Flow.State != v.State || got.Flow.Path != v.Path {
				t.Errorf("the flow is %+v, want %+v", got.Flow, v)
			}
			got.Flow = flow.View{}
			if got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

// handoff asks for one and wants an answer.
func (in *instance) handoff(id string) (res HandoffResult) {
	in.t.Helper()
	status, body := in.post("/v1/handoff", `{"flow":"`+id+`"}`)
	if status != http.StatusOK {
		in.t.Fatalf("%d %s", status, body)
	}
	if err := json.Unmarshal([]byte(body), &res); err != nil {
		in.t.Fatal(err)
	}
	return res
}

// A flow that is in the kernel stays there, and nobody is asked.
func TestHandoffAgain(t *testing.T) {
	in := newInstance(t, func(o *Options) {
		o.Handoffs = handoffs(func(flow.ID) (flow.HandoffResult, flow.NotOffloaded, error) {
			t.Error("asked for a flow that is handed off")
			return "", "", nil
		})
	})
	rec := in.open("10.201.1.2:40000", time.Now())
	rec.Attach(flow.PathBPF, &testPath{end: rec.Finish})
	if res := in.handoff(rec.ID().String()); res.Result != flow.HandoffDone || !res.Before {
		t.Errorf("%+v", res)
	}
}

func TestHandoffOfNoFlow(t *testing.T) {
	in := newInstance(t)
	dialing := in.registry.Open(flow.Spec{Proto: flow.TCP, Service: "web"})
	for _, tt := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"flow":"` + dialing.ID().String() + `"}`, http.StatusConflict, "being set up"},
		{`{"flow":"0123456789abcdef"}`, http.StatusNotFound, "no flow has the id"},
		{`{"flow":"xyz"}`, http.StatusBadRequest, "want the 16 hex digits"},
		{`{"id":"x"}`, http.StatusBadRequest, "unknown field"},
	} {
		status, body := in.post("/v1/handoff", tt.body)
		if status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d %s", tt.body, status, body)
		}
	}
}
