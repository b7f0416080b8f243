package health

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/baton-lb/baton/internal/flow"
)

// maxAnswer is how much of an answer is read, bytes.
const maxAnswer = 64 << 10

// tcp passes when the backend accepts a connection, and says what it shall if
// anything is expected.
func (p *prober) tcp(ctx context.Context, t target) outcome {
	c, release, err := p.connect(ctx, "tcp", t.address)
	if err != nil {
		return failed(err)
	}
	defer release()
	if t.Send != "" {
		if _, err := io.WriteString(c, t.Send); err != nil {
			return failed(err)
		}
	}
	if t.Expect == "" {
		return passed
	}
	return await(c, t.Expect)
}

// await reads until what is expected has come.
func await(r io.Reader, expect string) outcome {
	var got []byte
	for len(got) < maxAnswer {
		from := len(got)
		got = append(got, make([]byte, min(4096, maxAnswer-from))...)
		n, err := r.Read(got[from:])
		got = got[:from+n]
		if bytes.Contains(got[max(0, from-len(expect)):], []byte(expect)) {
			return passed
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return lacks(expect)
		case err != nil:
			return failed(err)
		}
	}
	return lacks(expect)
}

func lacks(expect string) outcome {
	const most = 40
	if len(expect) > most {
		expect = expect[:most] + "…"
	}
	return outcome{flow.ProbeBadAnswer, fmt.Sprintf("the answer lacks %q", expect)}
}
