package dump

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

// What has changed meanwhile is read again, and not for ever; other errors are the reader's.
func TestWhole(t *testing.T) {
	other := errors.New("other")
	changed := fmt.Errorf("list: %w", netlink.ErrDumpInterrupted)
	for _, tt := range []struct {
		says  []error // one reading after the other; then the last again
		reads int
		want  error
	}{
		{[]error{nil}, 1, nil},
		{[]error{other}, 1, other},
		{[]error{changed, changed, nil}, 3, nil},
		{[]error{changed, other}, 2, other},
		{[]error{changed}, tries, netlink.ErrDumpInterrupted},
	} {
		reads := 0
		got, err := Whole(func() (int, error) {
			reads++
			return reads, tt.says[min(reads, len(tt.says))-1]
		})
		if reads != tt.reads || got != reads || !errors.Is(err, tt.want) {
			t.Errorf("%v: %d after %d readings, %v", tt.says, got, reads, err)
		}
	}
}
