package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	proxyproto "github.com/pires/go-proxyproto"

	"github.com/baton-lb/baton/internal/flow"
	"github.com/baton-lb/baton/internal/testnet"
)

// proxied is a backend that wants a PROXY header, answers with a line that says
// what was in it, and echoes the rest.
func proxied(c net.Conn) {
	r := bufio.NewReader(c)
	h, err := proxyproto.Read(r)
	if err != nil {
		fmt.Fprintf(c, "error: %v\n", err)
		return
	}
	fmt.Fprintf(c, "v%d %s %s\n", h.Version, h.SourceAddr, h.DestinationAddr)
	_, _ = io.Copy(c, r)
	_ = c.(*net.TCPConn).CloseWrite()
}

// header makes a header from one address to another.
func header(version byte, from, to netip.AddrPort) []byte {
	h := proxyproto.HeaderProxyFromAddrs(version, net.TCPAddrFromAddrPort(from), net.TCPAddrFromAddrPort(to))
	b, err := h.Format()
	if err != nil {
		panic(err)
	}
	return b
}

// believed is an address that a client says it has.
func (w world) believed(last byte) netip.AddrPort {
	if w.v6 {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: last}), 4711)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, last}), 4711)
}

// trusting is an acceptProxy that trusts the client's host.
func (w world) trusting() string { return fmt.Sprintf("acceptProxy: [%q]", w.addr(w.Client)) }

// The backend is told the client's address and the VIP, and loses no byte.
func TestProxyHeaderOut(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.Backends[0].Serve(8080, proxied)
		b := start(t, w.Balancer, w.service(nil))
		for _, version := range []int{1, 2} {
			b.reload(w.service(nil, fmt.Sprintf("clientAddress: proxy-v%d", version)))
			c := w.dial(t)
			want := fmt.Sprintf("v%d %s %s", version, c.LocalAddr(), w.vip)
			w.exchange(t, c, want)
			v := b.endedOf(c.LocalAddr())
			wantEnd(t, v, flow.ByClient, flow.ReasonClosed)
			if v.BytesToBackend != exchanged {
				t.Errorf("%d bytes to the backend, want %d: the header is not payload", v.BytesToBackend, exchanged)
			}
		}
	})
}

const exchanged = 200 << 10

// exchange sends a stream, reads what the backend says first and then the stream.
func (w world) exchange(t *testing.T, c net.Conn, want string) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	go func() {
		_, _ = testnet.SendBulk(c, 9, exchanged)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	if line, err := testnet.ReadName(c); err != nil || line != want {
		t.Errorf("the backend says %q, %v; want %q", line, err, want)
	}
	if sum, err := testnet.ReceiveBulk(c); err != nil || sum != testnet.StreamSum(9, exchanged) {
		t.Errorf("the echo is %v, %v", sum, err)
	}
	c.Close()
}

// A header from a trusted client is believed, however it arrives, and what comes
// after it is the payload.
func TestProxyHeaderIn(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil, w.trusting()))
		from, to := w.believed(7), w.believed(99)
		local := []byte("\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00")
		for _, tc := range []struct {
			name   string
			header []byte
			split  bool           // a byte at a time
			client netip.AddrPort // zero = the connection's own
		}{
			{"v1", header(1, from, to), false, from},
			{"v2", header(2, from, to), false, from},
			{"v1 in pieces", header(1, from, to), true, from},
			{"v2 in pieces", header(2, from, to), true, from},
			{"v1 unknown", []byte("PROXY UNKNOWN\r\n"), false, netip.AddrPort{}},
			{"v2 local", local, true, netip.AddrPort{}},
		} {
			c := w.dial(t)
			payload := "first line\n"
			if tc.split {
				for i := range tc.header {
					if _, err := c.Write(tc.header[i : i+1]); err != nil {
						t.Fatalf("%s: byte %d: %v", tc.name, i, err)
					}
				}
				_, _ = io.WriteString(c, payload)
			} else {
				_, _ = c.Write(append(bytes.Clone(tc.header), payload...))
			}
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			r := bufio.NewReader(c)
			name, err := r.ReadString('\n')
			echo, err2 := r.ReadString('\n')
			if err := errors.Join(err, err2); err != nil || name != w.Backends[0].Name()+"\n" || echo != payload {
				t.Errorf("%s: read %q and %q, %v", tc.name, name, echo, err)
			}
			client := tc.client
			if !client.IsValid() {
				client = netip.MustParseAddrPort(c.LocalAddr().String())
			}
			live := b.wantFlows(1)
			if v := live[0]; v.Client != client || tc.client.IsValid() && v.Frontend != to {
				t.Errorf("%s: the record says %s at %s, want %s", tc.name, v.Client, v.Frontend, client)
			}
			(&conn{c}).ends(t)
			b.wantFlows(0)
		}
	})
}

// Rules and affinity go by the believed client.
func TestProxyHeaderIsBelieved(t *testing.T) {
	bothFamilies(t, 3, func(t *testing.T, w world) {
		w.serveNamed()
		denied := w.believed(66)
		b := start(t, w.Balancer, w.service(nil, w.trusting(), sticky, fmt.Sprintf("deny: [%q]", denied.Addr())))
		ask := func(as netip.AddrPort) (string, error) {
			c := w.dial(t)
			_, _ = c.Write(header(2, as, w.believed(99)))
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			defer c.Close()
			return testnet.ReadName(c)
		}
		at := map[string]bool{}
		for i := range byte(6) {
			first, err := ask(w.believed(i + 1))
			again, err2 := ask(netip.AddrPortFrom(w.believed(i+1).Addr(), 5000))
			if err := errors.Join(err, err2); err != nil || first != again {
				t.Errorf("client %d was at %q and came to %q, %v", i, first, again, err)
			}
			at[first] = true
		}
		if len(at) != 3 {
			t.Errorf("six believed clients are at %v, want each backend", at)
		}
		if name, err := ask(denied); err == nil {
			t.Errorf("a denied client got to %s", name)
		}
		wantEnd(t, b.endedOf(net.TCPAddrFromAddrPort(denied)), flow.ByBaton, flow.ReasonDenied)
		b.wantMetric(1, "baton_drops_total", `reason="denied"`)
	})
}

// Who is not trusted is not believed: what it sends is payload.
func TestProxyHeaderOfAStranger(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.Backends[0].Serve(8080, testnet.Echo)
		b := start(t, w.Balancer, w.service(nil, fmt.Sprintf("acceptProxy: [%q]", w.believed(1).Addr())))
		c := &conn{w.dial(t)}
		h := strings.TrimSuffix(string(header(1, w.believed(7), w.believed(9))), "\n")
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if err := testnet.Ask(c, h); err != nil {
			t.Error(err)
		}
		c.ends(t)
		if v := b.endedOf(c.LocalAddr()); v.BytesToBackend != uint64(len(h)+1) {
			t.Errorf("%d bytes to the backend, want %d", v.BytesToBackend, len(h)+1)
		}
	})
}

// A header that is missing, wrong, unfinished or late costs the connection.
func TestBadProxyHeader(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		t.Parallel()
		s := w.Backends[0].Serve(8080, testnet.Named("never"))
		b := start(t, w.Balancer, w.service(nil, w.trusting()))
		long := header(1, w.believed(1), w.believed(2))
		late := w.dial(t) // says nothing
		bad := map[string]string{
			"missing":    "GET / HTTP/1.1\r\n\r\n",
			"wrong":      "PROXY TCP4 300.1.1.1 1.1.1.1 1 2\r\n",
			"no end":     "PROXY TCP6 " + strings.Repeat("1", 120),
			"binary":     "\r\n\r\n\x00\r\nQUIT\n\x31\x11\x00\x0c",
			"unfinished": string(long[:len(long)-3]),
		}
		n := 0.0
		for name, text := range bad {
			c := w.dial(t)
			_, _ = io.WriteString(c, text)
			if name == "unfinished" {
				_ = c.CloseWrite()
			}
			(&conn{c}).wasReset(t)
			wantEnd(t, b.endedOf(c.LocalAddr()), flow.ByBaton, flow.ReasonProxyHeader)
			n++
			b.wantMetric(n, "baton_drops_total", `reason="bad-proxy-header"`)
		}
		(&conn{late}).wasReset(t)
		wantEnd(t, b.endedOf(late.LocalAddr()), flow.ByBaton, flow.ReasonProxyHeader)
		if s.Accepted() != 0 {
			t.Errorf("%d of them reached the backend", s.Accepted())
		}
	})
}

// Two instances in a row: the last backend knows the first client.
func TestProxyChain(t *testing.T) {
	bothFamilies(t, 2, func(t *testing.T, w world) {
		w.Backends[1].Serve(8080, proxied)
		inner := w
		inner.vip = w.backend(0)
		second := start(t, w.Backends[0], inner.service([]string{fmt.Sprintf("%q", w.backend(1))},
			"clientAddress: proxy-v1", fmt.Sprintf("acceptProxy: [%q]", w.towards(0))))
		first := start(t, w.Balancer, w.service([]string{fmt.Sprintf("%q", w.backend(0))}, "clientAddress: proxy-v2"))
		c := w.dial(t)
		w.exchange(t, c, fmt.Sprintf("v1 %s %s", c.LocalAddr(), w.vip))
		for _, b := range []*baton{first, second} {
			v := b.endedOf(c.LocalAddr())
			wantEnd(t, v, flow.ByClient, flow.ReasonClosed)
			if v.Frontend != w.vip {
				t.Errorf("the record's frontend is %s, want %s", v.Frontend, w.vip)
			}
		}
	})
}

// towards is the balancer's address on the link to a backend.
func (w world) towards(i int) netip.Addr {
	if w.v6 {
		return w.BackendLinks[i].A.IP6
	}
	return w.BackendLinks[i].A.IP4
}
