package flow

import "fmt"

// Proto is an IP protocol number (IANA "Assigned Internet Protocol Numbers").
type Proto uint8

// The protocols that Baton balances.
const (
	TCP  Proto = 6
	UDP  Proto = 17
	SCTP Proto = 132
)

// ParseProto reads "tcp", "udp" or "sctp".
func ParseProto(s string) (Proto, error) {
	switch s {
	case "tcp":
		return TCP, nil
	case "udp":
		return UDP, nil
	case "sctp":
		return SCTP, nil
	}
	return 0, fmt.Errorf("unknown protocol %q: use tcp, udp or sctp", s)
}

func (p Proto) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprintf("ip-proto-%d", uint8(p))
}

// MarshalText writes the name that ParseProto reads.
func (p Proto) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is ParseProto.
func (p *Proto) UnmarshalText(b []byte) (err error) {
	*p, err = ParseProto(string(b))
	return err
}
