package file

import (
	"fmt"
	"strings"
	"testing"
)

// large is a file of n services with m backends each, every fifth backend a map.
func large(n, m int) []byte {
	var b strings.Builder
	b.WriteString("services:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - name: svc-%d\n    frontends: [\"tcp://10.%d.%d.%d:80\"]\n    backends:\n", i, i>>16, i>>8&255, i&255)
		for j := range m {
			if j%5 == 0 {
				fmt.Fprintf(&b, "      - {address: \"10.%d.%d.%d:8080\", weight: 3}\n", 100+j, i>>8, i&255)
			} else {
				fmt.Fprintf(&b, "      - \"10.%d.%d.%d:8080\"\n", 100+j, i>>8, i&255)
			}
		}
	}
	return []byte(b.String())
}

func BenchmarkParse(b *testing.B) {
	for _, size := range []struct{ services, backends int }{{1, 3}, {100, 25}, {10_000, 25}} {
		b.Run(fmt.Sprintf("services=%d/backends=%d", size.services, size.backends), func(b *testing.B) {
			data := large(size.services, size.backends)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse("f", data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A syntax error deep in a large file costs a bounded number of further parses.
func BenchmarkSyntaxError(b *testing.B) {
	data := append(large(2_000, 25), "  - name: \"x\n"...)
	for b.Loop() {
		if _, err := Parse("f", data); err == nil {
			b.Fatal("accepted")
		}
	}
}
