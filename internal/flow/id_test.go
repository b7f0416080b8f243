package flow

import (
	"encoding/json"
	"testing"
)

func TestParseID(t *testing.T) {
	for _, c := range []struct {
		in   string
		want ID // 0 = an error
	}{
		{"0000000000000001", 1}, {"00000000000000ff", 255}, {"ffffffffffffffff", 1<<64 - 1}, {"00000000000000FF", 255},
		{"0000000000000000", 0}, {"", 0}, {"1", 0}, {"000000000000000g", 0}, {"00000000000000001", 0},
		{"+000000000000001", 0}, {"-000000000000001", 0}, {"0x00000000000001", 0}, {"0000_0000_0000_01", 0},
	} {
		got, err := ParseID(c.in)
		if got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%q: %d, %v; want %d", c.in, got, err, c.want)
		}
	}
}

func TestIDText(t *testing.T) {
	b, err := json.Marshal(ID(0xabc))
	if err != nil || string(b) != `"0000000000000abc"` {
		t.Errorf("%s, %v", b, err)
	}
	var id ID
	if err := json.Unmarshal(b, &id); err != nil || id != 0xabc {
		t.Errorf("%d, %v", id, err)
	}
	if json.Unmarshal([]byte(`"abc"`), &id) == nil {
		t.Error("a short one was read")
	}
}

func TestNewID(t *testing.T) {
	seen := make(map[ID]bool)
	for range 1000 {
		id := newID()
		if id == 0 || seen[id] {
			t.Fatalf("id %s", id)
		}
		seen[id] = true
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("0000000000000001")
	f.Add("+000000000000001")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if err != nil {
			return
		}
		if again, err := ParseID(id.String()); err != nil || again != id {
			t.Errorf("%q is %s, read again %s, %v", s, id, again, err)
		}
	})
}
