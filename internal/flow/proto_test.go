package flow

import (
	"encoding/json"
	"testing"
)

func TestProto(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Proto // 0 = an error
	}{{"tcp", TCP}, {"udp", UDP}, {"sctp", SCTP}, {"", 0}, {"TCP", 0}, {"icmp", 0}, {"6", 0}} {
		p, err := ParseProto(c.in)
		if p != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%q: %d, %v", c.in, p, err)
		}
		if c.want != 0 && p.String() != c.in {
			t.Errorf("%q is written %q", c.in, p)
		}
	}
	if s := Proto(1).String(); s != "ip-proto-1" {
		t.Errorf("icmp is written %q", s)
	}
}

func TestProtoText(t *testing.T) {
	b, err := json.Marshal(SCTP)
	if err != nil || string(b) != `"sctp"` {
		t.Errorf("%s, %v", b, err)
	}
	var p Proto
	if err := json.Unmarshal(b, &p); err != nil || p != SCTP {
		t.Errorf("%s, %v", p, err)
	}
	if json.Unmarshal([]byte(`"icmp"`), &p) == nil {
		t.Error("icmp was read")
	}
}
