package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// TestHelper is what other processes of the tests do: it runs where their
// descriptors are their own. Run as anything else it has nothing to show.
func TestHelper(t *testing.T) {
	addr, role := os.Getenv(helperAddr), os.Getenv(helperRole)
	switch role {
	case "backend":
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("began")
		go func() { _, _ = io.Copy(io.Discard, os.Stdin); ln.Close() }()
		echoAll(ln)
	case "client":
		n, err := strconv.Atoi(os.Getenv(helperCount))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("began")
		holdAll(t, addr, n)
	}
}

// echoAll echoes until it is told to end.
func echoAll(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		go func() {
			defer c.Close()
			_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 16))
		}()
	}
}

// holdAll opens connections, each of which echoes before the next is opened, has them
// echo again for each line it is told, until it is told to close.
func holdAll(t *testing.T, addr string, n int) {
	conns := make([]net.Conn, n)
	echo := func(i int) {
		want := fmt.Sprintf("%08d", i)
		got := make([]byte, len(want))
		_ = conns[i].SetDeadline(time.Now().Add(time.Minute))
		_, err := io.WriteString(conns[i], want)
		if err == nil {
			_, err = io.ReadFull(conns[i], got)
		}
		if err != nil || string(got) != want {
			t.Errorf("connection %d: %q, %v", i, got, err)
		}
	}
	each(conns, func(i int) {
		var err error
		if conns[i], err = net.Dial("tcp", addr); err != nil {
			t.Errorf("connection %d: %v", i, err)
			return
		}
		echo(i)
	})
	lines := bufio.NewScanner(os.Stdin)
	for !t.Failed() {
		fmt.Println("echoed")
		if !lines.Scan() || lines.Text() == "close" {
			break
		}
		each(conns, echo)
	}
	each(conns, func(i int) {
		if conns[i] != nil {
			conns[i].Close()
		}
	})
	fmt.Println("closed")
}

func each(conns []net.Conn, f func(i int)) {
	var wg sync.WaitGroup
	const workers = 16
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(conns); i += workers {
				f(i)
			}
		})
	}
	wg.Wait()
}
