package offload

import "testing"

func TestPortSet(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"\n", ""},
		{"0", "0"},
		{"8080", "8080"},
		{"8080,9000-9010", "8080,9000-9010"},
		{"3,1,2", "1-3"},
		{"1-5,4-9", "1-9"},
		{"0-65535", "0-65535"},
		{"65535", "65535"},
		{"63,64,65,128", "63-65,128"},
		{" 5 , 7\n", "5,7"},
	} {
		s, err := parsePortSet(tt.in)
		if got := s.String(); err != nil || got != tt.want {
			t.Errorf("%q: %q, %v; want %q", tt.in, got, err, tt.want)
		}
	}
	for _, in := range []string{"x", "1-", "-1", "9-1", "65536", "1,,2", "1-2-3"} {
		if s, err := parsePortSet(in); err == nil {
			t.Errorf("%q: %q", in, s.String())
		}
	}
}

func FuzzPortSet(f *testing.F) {
	for _, s := range []string{"", "1", "1-2,5", "0-65535", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := parsePortSet(in)
		if err != nil {
			return
		}
		again, err := parsePortSet(s.String())
		if err != nil || again != s {
			t.Errorf("%q: read back %q as %q, %v", in, s.String(), again.String(), err)
		}
	})
}
