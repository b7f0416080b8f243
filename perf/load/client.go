package load

import (
	"sync/atomic"
)

// Client is traffic that runs until it is stopped.
type Client struct {
	loop *loop

	done      atomic.Int64 // exchanges, or bytes of bulk data received
	flows     atomic.Int64 // connections established, or sockets that sent
	open      atomic.Int64 // connections that are there
	received  atomic.Int64 // bytes of payload
	lost      atomic.Int64 // datagrams that nobody answered in time
	recording atomic.Bool

	// The loop's thread; anybody's once it has stopped.
	latency Histogram
}

func newClient() (*Client, error) {
	l, err := newLoop()
	if err != nil {
		return nil, err
	}
	return &Client{loop: l}, nil
}

// Done is how many exchanges are over.
func (c *Client) Done() int64 { return c.done.Load() }

// Flows is how many connections were established, or how many sockets have sent
// a datagram.
func (c *Client) Flows() int64 { return c.flows.Load() }

// Open is how many connections are there and have had their first exchange.
func (c *Client) Open() int64 { return c.open.Load() }

// Received is how many bytes of payload came.
func (c *Client) Received() int64 { return c.received.Load() }

// Lost is how many datagrams were not answered in time and sent again.
func (c *Client) Lost() int64 { return c.lost.Load() }

// Record says whether the duration of exchanges goes into the latency histogram.
func (c *Client) Record(on bool) { c.recording.Store(on) }

// Latency is how long the recorded exchanges took. It may be called when the
// client has stopped.
func (c *Client) Latency() *Histogram { return &c.latency }

// Err is the first thing that went wrong.
func (c *Client) Err() error { return c.loop.err() }

// Stop resets what is open and waits for the thread. It may be called more than
// once.
func (c *Client) Stop() { c.loop.stop() }
