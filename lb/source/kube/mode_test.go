package kube

import (
	"testing"

	"github.com/baton-lb/baton/internal/flow"
)

// How a Service is carried: as it says itself, else as all are; what cannot be steered is proxied, and that is a fault of who asks for it
// by name.
func TestMode(t *testing.T) {
	const ports = "clusterIP: 10.96.0.10, ports: [{port: 80}]"
	for _, tt := range []struct {
		name        string
		all         Mode
		annotations map[string]string
		want        flow.Mode
		why         flow.NotSteered
		faults      int
	}{
		{"nothing said", "", nil, flow.ModeProxy, "", 0},
		{"all are steered", ModeAuto, nil, flow.ModeSteer, "", 0},
		{"by name", ModeSteer, nil, flow.ModeSteer, "", 0},
		{"one is", ModeProxy, map[string]string{annotationMode: "auto"}, flow.ModeSteer, "", 0},
		{"one is not", ModeAuto, map[string]string{annotationMode: "proxy"}, flow.ModeProxy, "", 0},
		{"by policy", ModeProxy, map[string]string{annotationPolicy: "mode: steer"}, flow.ModeSteer, "", 0},
		{"policy of something else", ModeAuto, map[string]string{annotationPolicy: "balance: maglev"}, flow.ModeSteer, "", 0},
		{"before the policy", ModeProxy, map[string]string{annotationMode: "proxy", annotationPolicy: "mode: steer"}, flow.ModeProxy, "", 0},
		{"cannot be", ModeAuto, map[string]string{annotationClient: "proxy-v2"}, flow.ModeProxy, flow.NotSteeredClientAddress, 0},
		{"cannot be, by policy", ModeAuto, map[string]string{annotationPolicy: "{balance: maglev, steer: {choose: ticket}}"}, flow.ModeProxy, flow.NotSteeredChoose, 0},
		{"cannot be, and is to", ModeAuto, map[string]string{annotationMode: "steer", annotationClient: "proxy-v2"}, flow.ModeProxy, flow.NotSteeredClientAddress, 1},
		{"unknown word", ModeAuto, map[string]string{annotationMode: "fast"}, flow.ModeSteer, "", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, Options{Mode: tt.all})
			s := service("web", ports)
			s.Annotations = tt.annotations
			w.set(s)
			c := w.take()
			if len(c.Upsert) != 1 || len(c.Faults) != tt.faults {
				t.Fatalf("%d services, faults %v", len(c.Upsert), c.Faults)
			}
			got := &c.Upsert[0]
			var why flow.NotSteered
			if got.Unsteered {
				why = got.NotSteerable()
			}
			if got.Mode != tt.want || why != tt.why {
				t.Errorf("mode %s (%q), want %s (%q)", got.Mode, why, tt.want, tt.why)
			}
		})
	}
}
