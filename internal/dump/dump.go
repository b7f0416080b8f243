package dump

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// tries is how often something is read. A table that changes each time is not worth more: whoever wants it asks again.
const tries = 5

// Whole reads until nothing has changed meanwhile (NLM_F_DUMP_INTR), a few times. The error is that of the last reading.
func Whole[T any](read func() (T, error)) (got T, err error) {
	for range tries {
		if got, err = read(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return got, err
}
