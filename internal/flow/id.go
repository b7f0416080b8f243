package flow

import (
	"fmt"
	"math/rand/v2"
	"strconv"
)

// ID names one flow for its whole life, also across a restart of the process.
// It is random, never 0, and written as 16 hex digits.
type ID uint64

func newID() ID {
	for {
		if id := ID(rand.Uint64()); id != 0 {
			return id
		}
	}
}

// ParseID reads the 16 hex digits of ID.String.
func ParseID(s string) (ID, error) {
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil || len(s) != 16 || n == 0 {
		return 0, fmt.Errorf("flow id %q: want 16 hex digits, as `baton flows` prints them", s)
	}
	return ID(n), nil
}

func (id ID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// MarshalText writes the 16 hex digits.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is ParseID.
func (id *ID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseID(string(b))
	return err
}
