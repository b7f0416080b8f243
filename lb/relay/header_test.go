package relay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay/proxyproto"
)

var (
	believedClient   = netip.MustParseAddrPort("192.0.2.1:4000")
	believedFrontend = netip.MustParseAddrPort("198.51.100.1:443")
)

// header is a PROXY header as a proxy in front would send it.
func header(v proxyproto.Version) string {
	return string(proxyproto.Append(nil, v, proxyproto.Stream, believedClient, believedFrontend))
}

// acceptsProxy is a service that believes headers from this host.
func acceptsProxy(backends ...netip.AddrPort) lb.Service {
	s := service("web", vip, backends...)
	s.AcceptProxy = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	return s
}

// A header is taken off the stream, whole or in pieces, and not one byte after
// it; the record has the client that it names.
func TestAcceptProxy(t *testing.T) {
	addr, _ := backend(t, testnet.Echo)
	for name, tt := range map[string]struct {
		version proxyproto.Version
		payload string
		piece   int // bytes written at once
	}{
		"version 1":         {proxyproto.V1, "payload", 1000},
		"version 2":         {proxyproto.V2, "payload", 1000},
		"header apart":      {proxyproto.V2, "payload", len(header(proxyproto.V2))},
		"in pieces":         {proxyproto.V1, "payload", 7},
		"byte by byte":      {proxyproto.V2, "payload", 1},
		"a big one behind":  {proxyproto.V2, strings.Repeat("payload", 20_000), 1 << 20},
		"nothing behind it": {proxyproto.V1, "", 1000},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{})
			w.serve(acceptsProxy(addr))
			c := dial(t, vip)
			go func() {
				for _, p := range split(header(tt.version)+tt.payload, tt.piece) {
					_, _ = io.WriteString(c, p)
					time.Sleep(200 * time.Microsecond) // segments of their own
				}
				_ = c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if string(got) != tt.payload || err != nil {
				t.Errorf("the echo is %d bytes, %v, want %d", len(got), err, len(tt.payload))
			}
			v := w.wantEnded(flow.ByClient, flow.ReasonClosed)
			if v.Client != believedClient || v.Frontend != believedFrontend || v.BytesToBackend != uint64(len(tt.payload)) {
				t.Errorf("the record: %+v", v)
			}
		})
	}
}

// split cuts a text into pieces of n bytes.
func split(s string, n int) (pieces []string) {
	for len(s) > n {
		pieces, s = append(pieces, s[:n]), s[n:]
	}
	return append(pieces, s)
}

// A connection without a good header is reset, in a record and a counter, and
// no backend hears of it.
func TestBadHeader(t *testing.T) {
	w := newWorld(t, Options{})
	addr, server := backend(t, testnet.Echo)
	w.serve(acceptsProxy(addr))
	bad := []string{"GET / HTTP/1.0\r\n\r\n", "PROXY TCP9 1 2 3 4\r\n", header(proxyproto.V2)[:20], "PROXY TCP4 ", ""}
	for i, text := range bad {
		c := dial(t, vip)
		_, _ = io.WriteString(c, text)
		_ = c.CloseWrite()
		if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%q: the client's end: %v", text, err)
		}
		wantEnd(t, w.ended(c.LocalAddr()), flow.ByBaton, flow.ReasonProxyHeader)
		if n := w.registry.DropCounts()[flow.DropProxyHeader]; n != uint64(i+1) {
			t.Errorf("%q: %d drops", text, n)
		}
	}
	if n := server.Accepted(); n != 0 {
		t.Errorf("the backend got %d connections", n)
	}
}

// A client that resets before its header is complete ended its flow itself.
func TestResetInsteadOfHeader(t *testing.T) {
	w := newWorld(t, Options{})
	addr, _ := backend(t, testnet.Echo)
	w.serve(acceptsProxy(addr))
	for range 10 {
		c := dial(t, vip)
		testnet.Eventually(t, patience, "the relay has it", func() error {
			if w.relay.Flows() == 0 {
				return errors.New("no")
			}
			return nil
		})
		testnet.Reset(c)
		wantEnd(t, w.ended(c.LocalAddr()), flow.ByClient, flow.ReasonReset)
	}
}

// Whether a client may use a frontend is decided by who it is said to be.
func TestDeniedByHeader(t *testing.T) {
	w := newWorld(t, Options{})
	addr, _ := backend(t, testnet.Echo)
	s := acceptsProxy(addr)
	s.Deny = []netip.Prefix{netip.PrefixFrom(believedClient.Addr(), 32)}
	w.serve(s)
	c := dial(t, vip)
	_, _ = io.WriteString(c, header(proxyproto.V1))
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client's end: %v", err)
	}
	v := w.wantEnded(flow.ByBaton, flow.ReasonDenied)
	if v.Client != believedClient {
		t.Errorf("%+v", v)
	}
}

// A frontend's own rule is the one that counts.
func TestSendProxyOfAFrontend(t *testing.T) {
	for _, tt := range []struct{ service, frontend, want lb.ClientAddress }{
		{lb.Masked, lb.ProxyV1, lb.ProxyV1},
		{lb.ProxyV1, lb.ProxyV2, lb.ProxyV2},
		{lb.ProxyV2, lb.Masked, lb.Masked},
		{lb.ProxyV2, "", lb.ProxyV2},
	} {
		t.Run(fmt.Sprintf("%s/%s", tt.service, tt.frontend), func(t *testing.T) {
			w := newWorld(t, Options{})
			got := make(chan string, 1)
			addr, _ := backend(t, func(c net.Conn) {
				b, _ := io.ReadAll(c)
				got <- string(b)
			})
			s := service("web", vip, addr)
			s.ClientAddress, s.Frontends[0].ClientAddress = tt.service, tt.frontend
			w.serve(s)
			c := dial(t, vip)
			_ = c.CloseWrite()
			client := c.LocalAddr().(*net.TCPAddr).AddrPort()
			want := map[lb.ClientAddress]string{
				lb.Masked:  "",
				lb.ProxyV1: string(proxyproto.Append(nil, proxyproto.V1, proxyproto.Stream, client, vip)),
				lb.ProxyV2: string(proxyproto.Append(nil, proxyproto.V2, proxyproto.Stream, client, vip)),
			}[tt.want]
			if s := receive(t, got); s != want {
				t.Errorf("the backend got %q, want %q", s, want)
			}
		})
	}
}

// A backend gets a header in front of the stream, with the client's address and
// the frontend's; it is no payload. One that was believed is passed on.
func TestSendProxy(t *testing.T) {
	for version, rule := range map[proxyproto.Version]lb.ClientAddress{proxyproto.V1: lb.ProxyV1, proxyproto.V2: lb.ProxyV2} {
		for _, behind := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", rule, behind), func(t *testing.T) {
				w := newWorld(t, Options{})
				got := make(chan string, 1)
				addr, _ := backend(t, func(c net.Conn) {
					b, err := io.ReadAll(c)
					got <- fmt.Sprint(string(b), err)
				})
				s := service("web", vip, addr)
				if behind {
					s = acceptsProxy(addr)
				}
				s.ClientAddress = rule
				w.serve(s)
				c := dial(t, vip)
				client, frontend := c.LocalAddr().(*net.TCPAddr).AddrPort(), vip
				if behind {
					client, frontend = believedClient, believedFrontend
					_, _ = io.WriteString(c, header(proxyproto.V2))
				}
				_, _ = io.WriteString(c, "payload")
				_ = c.CloseWrite()
				want := string(proxyproto.Append(nil, version, proxyproto.Stream, client, frontend)) + "payload<nil>"
				if s := receive(t, got); s != want {
					t.Errorf("the backend got %q, want %q", s, want)
				}
				if v := w.wantEnded(flow.ByClient, flow.ReasonClosed); v.BytesToBackend != 7 {
					t.Errorf("%d bytes counted, want 7", v.BytesToBackend)
				}
			})
		}
	}
}
