package relay_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/relay"
	"github.com/baton-lb/baton/lb/store"
)

// A program of one's own balances to backends that it finds in its own way: it
// needs a store, a source that hands services over, and a relay.
func Example() {
	desired := store.New(store.Options{})
	source := desired.Source("example")
	balancer, err := relay.New(relay.Options{Store: desired})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer balancer.Close()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = desired.Run(ctx) })
	defer running.Wait()
	defer stop()

	service := lb.Default("web")
	frontend, _ := lb.ParseFrontend("tcp://127.0.0.1:18080")
	service.Frontends = append(service.Frontends, frontend)
	for _, name := range []string{"alice", "bob"} {
		addr, closeBackend := greet(name)
		defer closeBackend()
		service.Backends = append(service.Backends, lb.Backend{Address: addr, Weight: 1})
	}
	if err := source.Upsert(service); err != nil {
		fmt.Println(err)
		return
	}
	source.Synced()
	_ = desired.Programmed(ctx, desired.Snapshot().Revision)

	for range 4 {
		conn, err := net.Dial("tcp", "127.0.0.1:18080")
		if err != nil {
			fmt.Println(err)
			return
		}
		answer, _ := io.ReadAll(conn)
		conn.Close()
		fmt.Printf("%s", answer)
	}
	// Unordered output:
	// hello from alice
	// hello from bob
	// hello from alice
	// hello from bob
}

// greet is a backend that says one line to everybody.
func greet(name string) (addr netip.AddrPort, stop func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(conn, "hello from %s\n", name)
			conn.Close()
		}
	})
	return listener.Addr().(*net.TCPAddr).AddrPort(), func() { listener.Close(); running.Wait() }
}
