package testnet

import (
	"testing"
	"time"
)

func TestSlow(t *testing.T) {
	for _, tc := range []struct {
		name, vm string
		scaled   map[int]int
		patience time.Duration
	}{
		{"quick", "", map[int]int{0: 0, 1: 1, 7: 7, 1000: 1000}, time.Second},
		{"interpreted", "1", map[int]int{0: 1, 1: 1, 7: 1, 1000: 100}, 5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("BATON_VM", tc.vm)
			for n, want := range tc.scaled {
				if got := Scaled(n); got != want {
					t.Errorf("scaled %d: got %d, want %d", n, got, want)
				}
			}
			if got := Patience(time.Second); got != tc.patience {
				t.Errorf("patience: got %v, want %v", got, tc.patience)
			}
		})
	}
}
