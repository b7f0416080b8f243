package e2e

import (
	"syscall"
	"testing"
	"time"
)

// A process that is stopped goes on serving for --await-successor, and another may take
// over: no connection fails. Else it stops, as it does at the second signal.
func TestAwaitSuccessor(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil), "--await-successor", "1m")
		kept, _ := w.named(t)
		l := w.load(t, 4)
		b.signal(syscall.SIGTERM)
		b.waitLog("stopping soon")
		l.more(t, 100)
		next := b.upgrade(w, w.service(nil), "--await-successor", "10ms")
		l.more(t, 100)
		kept.works(t)
		kept.ends(t)
		b.exits(10 * time.Second)
		l.end(t)
		next.signal(syscall.SIGTERM)
		next.waitLog("no other process has taken over")
		next.exits(10 * time.Second)
		next.gone(w)

		again := start(t, w.Balancer, w.service(nil), "--await-successor", "1m")
		again.signal(syscall.SIGTERM)
		again.waitLog("stopping soon")
		again.stopsListening(w)
		again.exits(10 * time.Second)
	})
}

// A process that comes while another drains waits for its end, and starts then.
func TestUpgradeOfAStoppingProcess(t *testing.T) {
	bothFamilies(t, 1, func(t *testing.T, w world) {
		w.serveNamed()
		b := start(t, w.Balancer, w.service(nil), "--exit-timeout", "1m")
		kept, _ := w.named(t)
		b.stopsListening(w)
		next := b.successor(w.Balancer, w.service(nil))
		next.run()
		next.waitLog("waiting for an instance to end")
		kept.works(t)
		kept.ends(t)
		b.exits(10 * time.Second)
		next.waitServing()
		w.who(t)
	})
}
