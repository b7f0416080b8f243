package offload

import (
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/lb"
)

func TestExcluded(t *testing.T) {
	for _, tt := range []struct {
		p        lb.Offload
		tcp, udp flow.NotOffloaded
	}{
		{lb.Offload{Mode: lb.OffloadAuto, Path: lb.OffloadPathAuto}, "", ""},
		{lb.Offload{Mode: lb.OffloadAlways, Path: lb.OffloadPathBPF}, "", ""},
		{lb.Offload{Mode: lb.OffloadNever, Path: lb.OffloadPathBPF}, flow.NotOffloadedNever, flow.NotOffloadedNever},
		{lb.Offload{Mode: lb.OffloadAlways, Path: lb.OffloadPathFlowtable}, flow.NotOffloadedTerminated, flow.NotOffloadedUnavailable},
	} {
		if tcp, udp := excluded(tt.p, true), excluded(tt.p, false); tcp != tt.tcp || udp != tt.udp {
			t.Errorf("%+v: %q, %q", tt.p, tcp, udp)
		}
	}
}

// A flow is looked at about when it will be big enough, not before it is old enough,
// and not often.
func TestUntilNextLook(t *testing.T) {
	p := lb.Offload{AfterBytes: 64 << 10, AfterAge: time.Second}
	for _, tt := range []struct {
		name  string
		age   time.Duration
		moved int64
		want  time.Duration
	}{
		{"young", 300 * time.Millisecond, 1 << 20, 700 * time.Millisecond},
		{"half way", 10 * time.Second, 32 << 10, 10 * time.Second},
		{"almost", 10 * time.Second, 64<<10 - 1, minLook},
		{"slow", time.Minute, 10, maxLook},
		{"silent", 2 * time.Second, 0, 2 * time.Second},
		{"silent for long", time.Hour, 0, maxLook},
	} {
		if got := untilNextLook(p, tt.age, tt.moved); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Attempts become rarer, hold data back from the second on, and come to an end.
func TestRetryAfter(t *testing.T) {
	var before time.Duration
	for tries := 1; ; tries++ {
		wait, force, again := retryAfter(tries, false)
		if !again {
			if tries < 3 {
				t.Errorf("given up after %d", tries)
			}
			break
		}
		if !force || wait <= before {
			t.Errorf("%d: after %v, force %v", tries, wait, force)
		}
		before = wait
	}
	if _, force, again := retryAfter(0, false); force || !again {
		t.Error("the first attempt holds back")
	}
	if _, force, _ := retryAfter(0, true); !force {
		t.Error("mode always does not")
	}
}
