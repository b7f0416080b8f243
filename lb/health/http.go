package health

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/baton-lb/baton/internal/flow"
)

// http passes when the answer to GET has a good status, and contains what it
// shall. Redirects are answers like any other.
func (p *prober) http(ctx context.Context, t target) outcome {
	c, release, err := p.connect(ctx, "tcp", t.address)
	if err != nil {
		return failed(err)
	}
	defer release()
	if _, err := io.WriteString(c, t.request()); err != nil {
		return failed(err)
	}
	bounded := &io.LimitedReader{R: c, N: maxAnswer}
	resp, err := readResponse(bufio.NewReader(bounded))
	switch {
	case err != nil && bounded.N == 0:
		return outcome{flow.ProbeBadAnswer, "not an HTTP answer: its header does not end"}
	case err != nil:
		return noResponse(err)
	}
	if !t.statuses.Has(resp.StatusCode) {
		return outcome{flow.ProbeBadStatus, "status " + strconv.Itoa(resp.StatusCode)}
	}
	if t.Expect == "" {
		return passed
	}
	return await(resp.Body, t.Expect)
}

// request is the whole request. The connection is for this one only.
func (t target) request() string {
	host := t.Host
	if host == "" {
		host = t.address.String()
	}
	return "GET " + t.Path + " HTTP/1.1\r\n" +
		"Host: " + host + "\r\n" +
		"User-Agent: baton-health\r\n" +
		"Accept: */*\r\n" +
		"Connection: close\r\n\r\n"
}

// maxInformational is how many answers with a status of 1xx may come first.
const maxInformational = 5

func readResponse(r *bufio.Reader) (*http.Response, error) {
	for range maxInformational {
		resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodGet})
		if err != nil || resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, err
		}
	}
	return nil, errors.New("nothing but informational answers")
}

// noResponse tells a broken connection from an answer that is not HTTP.
func noResponse(err error) outcome {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return outcome{flow.ProbeReset, "connection closed before there was an answer"}
	}
	if o := failed(err); o.result != flow.ProbeLocal {
		return o
	}
	return outcome{flow.ProbeBadAnswer, "not an HTTP answer: " + err.Error()}
}
