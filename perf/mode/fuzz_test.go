package mode

import (
	"strings"
	"testing"
)

// Whatever a program answers, reading it ends with counts or with an error.
func FuzzParse(f *testing.F) {
	f.Add("# pxname,svname,stot,bin,bout,\necho,FRONTEND,10,100,1000,\n")
	f.Add("Active connections: 3 \nserver accepts handled requests\n 17 17 2 \nReading: 0 Writing: 1 Waiting: 0 \n")
	f.Add(`{"nftables": [{"counter": {"name": "flows", "packets": 42}}]}`)
	f.Add("baton_flows_active{path=\"userspace\",protocol=\"tcp\",service=\"echo\"} 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		for name, parse := range map[string]func() (Counts, error){
			"HAProxy": func() (Counts, error) { return parseHAProxy(strings.NewReader(text)) },
			"nginx":   func() (Counts, error) { return parseNginx(text) },
			"Baton":   func() (Counts, error) { return parseBaton(strings.NewReader(text), false) },
		} {
			if counts, err := parse(); (counts == nil) != (err != nil) {
				t.Errorf("%s: %v, %v", name, counts, err)
			}
		}
		if n, err := parseCounter([]byte(text)); err != nil && n != 0 {
			t.Errorf("nft: %d, %v", n, err)
		}
	})
}
