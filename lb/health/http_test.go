package health

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
)

// serveHTTP serves on a host until the test ends.
func serveHTTP(t *testing.T, h *testnet.Host, port uint16, handler http.HandlerFunc) {
	t.Helper()
	ln, err := h.Listen("tcp", netip.AddrPortFrom(netip.Addr{}, port))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ln) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
}

// answerOK answers one request with 204.
func answerOK(c net.Conn) {
	_, _ = io.ReadAtLeast(c, make([]byte, 4096), 10)
	_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
}

func asking(path, status, expect string) func(*lb.HealthCheck) {
	return func(h *lb.HealthCheck) { h.Path, h.Status, h.Expect = path, status, expect }
}

// Which status is good. The path says with which one the server answers.
func TestProbeHTTPStatus(t *testing.T) {
	star := testnet.NewStar(t, 1)
	p, h := proberOn(star.Balancer), star.Backends[0]
	serveHTTP(t, h, 80, func(w http.ResponseWriter, r *http.Request) {
		code, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil {
			t.Errorf("asked for %s: a redirect was followed", r.URL)
			return
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(code)
	})
	families(t, h, func(t *testing.T, a netip.Addr) {
		for _, c := range []struct {
			status string
			codes  map[int]bool
		}{
			{"200-399", map[int]bool{200: true, 204: true, 301: true, 302: true, 399: true, 400: false, 404: false, 500: false, 503: false}},
			{"200", map[int]bool{200: true, 201: false, 204: false, 302: false, 500: false}},
			{"200,204,401", map[int]bool{200: true, 201: false, 204: true, 401: true, 402: false}},
			{"200-299, 503", map[int]bool{200: true, 250: true, 299: true, 300: false, 302: false, 502: false, 503: true, 504: false}},
			{"500-599", map[int]bool{200: false, 499: false, 500: true, 599: true}},
		} {
			for code, good := range c.codes {
				got := p.run(t, checkOf(lb.ProbeHTTP, asking("/"+strconv.Itoa(code), c.status, "")), netip.AddrPortFrom(a, 80))
				want := outcome{flow.ProbeBadStatus, fmt.Sprintf("status %d", code)}
				if good {
					want = passed
				}
				if got != want {
					t.Errorf("status %q, answer %d: %+v, want %+v", c.status, code, got, want)
				}
			}
		}
	})
}

func TestProbeHTTPRequest(t *testing.T) {
	star := testnet.NewStar(t, 1)
	p, h := proberOn(star.Balancer), star.Backends[0]
	serveHTTP(t, h, 8080, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s host=%s agent=%s close=%v", r.Method, r.RequestURI, r.Host, r.UserAgent(), r.Close)
	})
	for _, c := range []struct {
		addr       netip.Addr
		path, host string
		want       string
	}{
		{h.IP4, "/", "", "GET / host=10.202.1.2:8080 agent=baton-health close=true"},
		{h.IP6, "/", "", "GET / host=[fd00:202:1::2]:8080 agent=baton-health close=true"},
		{h.IP4, "/healthz?full=1&x=%20", "example.org", "GET /healthz?full=1&x=%20 host=example.org agent=baton-health close=true"},
	} {
		got := p.run(t, checkOf(lb.ProbeHTTP, asking(c.path, "200", c.want), func(h *lb.HealthCheck) { h.Host = c.host }),
			netip.AddrPortFrom(c.addr, 8080))
		if got != passed {
			t.Errorf("%s %s: %+v", c.host, c.path, got)
		}
	}
}

// Answers as they come over the wire.
func TestProbeHTTPAnswers(t *testing.T) {
	star := testnet.NewStar(t, 1)
	p, h := proberOn(star.Balancer), star.Backends[0]
	const ok = "HTTP/1.1 200 OK\r\n"
	for i, c := range []struct {
		name, answer string
		expect       string
		result       flow.ProbeResult
		detail       string
	}{
		{"short", ok + "Content-Length: 4\r\n\r\npong", "pong", flow.ProbePassed, ""},
		{"until the end", ok + "\r\nping pong", "pong", flow.ProbePassed, ""},
		{"chunked, in two chunks", ok + "Transfer-Encoding: chunked\r\n\r\n2\r\npo\r\n2\r\nng\r\n0\r\n\r\n", "pong", flow.ProbePassed, ""},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\npong", "pong", flow.ProbePassed, ""},
		{"another word", ok + "Content-Length: 4\r\n\r\nping", "pong", flow.ProbeBadAnswer, `lacks "pong"`},
		{"no body", ok + "Content-Length: 0\r\n\r\n", "pong", flow.ProbeBadAnswer, `lacks "pong"`},
		{"cut off", ok + "Content-Length: 9\r\n\r\npon", "pong", flow.ProbeBadAnswer, `lacks "pong"`},
		{"only in the header", ok + "X: pong\r\nContent-Length: 0\r\n\r\n", "pong", flow.ProbeBadAnswer, `lacks "pong"`},
		{"late in a long body", ok + "\r\n" + strings.Repeat("x", 60000) + "pong", "pong", flow.ProbePassed, ""},
		{"too late", ok + "\r\n" + strings.Repeat("x", maxAnswer) + "pong", "pong", flow.ProbeBadAnswer, `lacks "pong"`},
		{"across two reads", ok + "\r\n" + strings.Repeat("x", 4096-2) + "pong", "pong", flow.ProbePassed, ""},
		{"after 100", "HTTP/1.1 100 Continue\r\n\r\n" + ok + "\r\n", "", flow.ProbePassed, ""},
		{"after early hints", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 503 Later\r\n\r\n", "", flow.ProbeBadStatus, "503"},
		{"only 100s", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 50), "", flow.ProbeBadAnswer, "informational"},
		{"nothing", "", "", flow.ProbeReset, "closed before"},
		{"half a header", "HTTP/1.1 200 O", "", flow.ProbeReset, "closed before"},
		{"not HTTP", "220 mail ESMTP\r\n", "", flow.ProbeBadAnswer, "not an HTTP answer"},
		{"a bad header", ok + "no colon\r\n\r\n", "", flow.ProbeBadAnswer, "not an HTTP answer"},
		{"an endless header", ok + strings.Repeat("X: y\r\n", 20000), "", flow.ProbeBadAnswer, "header"},
	} {
		port := uint16(8000 + i)
		h.Serve(port, func(conn net.Conn) {
			_, _ = io.ReadAtLeast(conn, make([]byte, 4096), 10)
			_, _ = io.WriteString(conn, c.answer)
		})
		families(t, h, func(t *testing.T, a netip.Addr) {
			got := p.run(t, checkOf(lb.ProbeHTTP, asking("/", "200-399", c.expect)), netip.AddrPortFrom(a, port))
			if got.result != c.result || !strings.Contains(got.detail, c.detail) {
				t.Errorf("%s: %s %q, want %s %q", c.name, got.result, got.detail, c.result, c.detail)
			}
		})
	}
}

// Nobody keeps a probe waiting for longer than its timeout, nor reads it to the
// end of an answer that is good already.
func TestProbeHTTPSlow(t *testing.T) {
	star := testnet.NewStar(t, 1)
	p, h := proberOn(star.Balancer), star.Backends[0]
	h.Serve(80, testnet.Hold)
	h.Serve(81, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		testnet.Sink(c)
	})
	h.Serve(82, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nready\n")
		testnet.Sink(c)
	})
	families(t, h, func(t *testing.T, a netip.Addr) {
		quick := within(200 * time.Millisecond)
		at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }
		wantOutcome(t, p.run(t, checkOf(lb.ProbeHTTP, quick), at(80)), flow.ProbeTimeout, "")
		wantOutcome(t, p.run(t, checkOf(lb.ProbeHTTP), at(81)), flow.ProbePassed, "")
		wantOutcome(t, p.run(t, checkOf(lb.ProbeHTTP, quick, asking("/", "200", "ready")), at(81)), flow.ProbeTimeout, "")
		wantOutcome(t, p.run(t, checkOf(lb.ProbeHTTP, asking("/", "200", "ready")), at(82)), flow.ProbePassed, "")
		wantOutcome(t, p.run(t, checkOf(lb.ProbeHTTP), at(83)), flow.ProbeRefused, "connection refused")
	})
}
