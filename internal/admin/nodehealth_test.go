package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// askNode asks the health server for kube-proxy's clients.
func (in *instance) askNode(path string) (status int, answer map[string]any) {
	in.t.Helper()
	resp, err := http.Get("http://" + in.server.NodeListener().Addr().String() + path)
	if err != nil {
		in.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil {
		in.t.Fatalf("%s: %q: %v", path, body, err)
	}
	return resp.StatusCode, answer
}

func TestNodeHealth(t *testing.T) {
	begin := time.Now().Add(-time.Hour)
	for _, tc := range []struct {
		name           string
		status         NodeStatus
		healthz, livez int
		eligible       bool
		says           string // of the API server
	}{
		{"starting", NodeStatus{}, 503, 200, true, ""},
		{"ready", NodeStatus{Ready: true, LastUpdate: begin}, 200, 200, true, ""},
		{"late", NodeStatus{Ready: true, Late: true, LastUpdate: begin}, 503, 503, true, ""},
		{"leaving", NodeStatus{Ready: true, Leaving: true, LastUpdate: begin}, 503, 200, false, ""},
		{"stale", NodeStatus{Ready: true, LastUpdate: begin, Stale: 5 * time.Minute}, 200, 200, true, "out of reach for 5m0s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := newInstance(t, func(o *Options) {
				o.Node = NodeOptions{Address: "127.0.0.1:0", Status: func() NodeStatus { return tc.status }}
			})
			status, answer := in.askNode("/healthz")
			if status != tc.healthz || answer["nodeEligible"] != tc.eligible {
				t.Errorf("/healthz: %d %v", status, answer)
			}
			if said := fmt.Sprint(answer["apiServer"]); tc.says != "" && said != tc.says || tc.says == "" && said != "<nil>" {
				t.Errorf("it says of the API server %q, want %q", said, tc.says)
			}
			updated, err := time.Parse(time.RFC3339Nano, answer["lastUpdated"].(string))
			if recent := time.Since(updated) < time.Minute; err != nil || recent != (tc.healthz == 200) {
				t.Errorf("lastUpdated %v, %v", answer["lastUpdated"], err)
			}
			if _, text := in.getTCP("/healthz"); strings.Contains(text, "API server is "+tc.says) != (tc.says != "") || tc.says != "" && !strings.HasPrefix(text, "ok\n") {
				t.Errorf("the other /healthz says %q", text)
			}
			status, answer = in.askNode("/livez")
			if _, has := answer["nodeEligible"]; status != tc.livez || has || answer["currentTime"] == nil {
				t.Errorf("/livez: %d %v", status, answer)
			}
		})
	}
}

// Nothing else is served there, and neither answer hides a loop that has stopped.
func TestNodeHealthOnly(t *testing.T) {
	in := newInstance(t, func(o *Options) {
		o.ProxyMode = "baton"
		o.Node = NodeOptions{Address: "127.0.0.1:0", Status: func() NodeStatus { return NodeStatus{Ready: true} }}
	})
	resp, err := http.Get("http://" + in.server.NodeListener().Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("/metrics: %d", resp.StatusCode)
	}
	in.life.SetStuck()
	if status, answer := in.askNode("/livez"); status != 503 {
		t.Errorf("/livez of a stuck instance: %d %v", status, answer)
	}
	if status, body := in.getTCP("/proxyMode"); status != 200 || body != "baton" {
		t.Errorf("/proxyMode: %d %q", status, body)
	}
	if status, body := in.get("/healthz"); status != 503 || !strings.Contains(body, "loop") {
		t.Errorf("/healthz: %d %q", status, body)
	}
}
