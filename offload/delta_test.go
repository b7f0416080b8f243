package offload

import (
	"math/rand/v2"
	"testing"
)

// What one side sends next is what the other expects next, and what one acknowledges
// is what the other has sent: whatever the numbers were.
func TestRewrites(t *testing.T) {
	for range 1000 {
		c, b := plain(), plain()
		c.setScales(3, 7)
		b.setScales(9, 5)
		s := standing{
			client:      sequence{write: rand.Uint32(), receive: rand.Uint32()},
			backend:     sequence{write: rand.Uint32(), receive: rand.Uint32()},
			clientClock: rand.Uint32(), backendClock: rand.Uint32(), clientTSval: rand.Uint32(), backendTSval: rand.Uint32(),
			clientInfo: c.info, backendInfo: b.info,
		}
		there, back := s.rewrites()
		for _, v := range []struct {
			what      string
			got, want uint32
		}{
			// The client's next byte has the number that we have told it to be at.
			{"client's next byte at the backend", s.client.receive + there.Seq, s.backend.write},
			{"backend's next byte at the client", s.backend.receive + back.Seq, s.client.write},
			{"client's acknowledgement at the backend", s.client.write + there.Ack, s.backend.receive},
			{"backend's acknowledgement at the client", s.backend.write + back.Ack, s.client.receive},
			{"client's timestamp at the backend", s.clientTSval + there.TSval, s.backendClock + clockMargin},
			{"backend's timestamp at the client", s.backendTSval + back.TSval, s.clientClock + clockMargin},
			{"and its echo at the client", s.backendClock + clockMargin + back.TSecr, s.clientTSval},
			{"and the other's", s.clientClock + clockMargin + there.TSecr, s.backendTSval},
		} {
			if v.got != v.want {
				t.Errorf("%s: %d, want %d", v.what, v.got, v.want)
			}
		}
		if there.Shift != 3-5 || back.Shift != 9-7 || there.Scale != 3 || back.Scale != 9 {
			t.Errorf("windows: %+v, %+v", there, back)
		}
	}
}

func TestRewritesWithoutTimestamps(t *testing.T) {
	s := standing{clientClock: 5, backendClock: 6, clientTSval: 7, backendTSval: 8}
	if there, back := s.rewrites(); there.TSval|there.TSecr|back.TSval|back.TSecr != 0 {
		t.Errorf("%+v, %+v", there, back)
	}
}
